//! The log of this process in memory: a failed check prints the lines that explain it.

use std::collections::VecDeque;
use std::io::{self, Write};

use parking_lot::{Mutex, MutexGuard};
use tracing_subscriber::EnvFilter;

const FILTER: &str = "warn,kubeleet=info,kubeleet_worker=debug,kubeleet_engine=debug,kubeleet_health=debug";
const MAX_LINES: usize = 200_000;

static LINES: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

pub fn start() {
    let result = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(FILTER))
        .with_ansi(false)
        .with_target(false)
        .with_writer(|| KeptLines)
        .try_init();
    // Another test of this process may have started it.
    drop(result);
}

pub fn lines_with(words: &[&str]) -> Vec<String> {
    let is_asked = |line: &&String| words.iter().any(|word| line.contains(word));
    lines().iter().filter(is_asked).cloned().collect()
}

fn lines() -> MutexGuard<'static, VecDeque<String>> {
    LINES.lock()
}

/// Each event of `tracing` is one call.
struct KeptLines;

impl Write for KeptLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut lines = lines();
        if lines.len() == MAX_LINES {
            lines.pop_front();
        }
        lines.push_back(String::from_utf8_lossy(line).trim_end().to_owned());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
