//! Log file of `dev`'s daemons.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use daemon::config::Config;

use output::stderr;

pub(super) const NAME: &str = "dev.log";
const SHOWN_LINES: usize = 30;

/// `None` if logs go to standard error.
pub(super) struct LogFile(Option<PathBuf>);

impl LogFile {
    pub(super) fn start(directory: &Path, config: &Config, verbose: bool) -> anyhow::Result<Self> {
        if verbose {
            daemon::telemetry::init(&config.log, config.log_json);
            return Ok(Self(None));
        }
        let path = directory.join(NAME);
        daemon::telemetry::init_to_file(&config.log, config.log_json, create(&path)?);
        Ok(Self(Some(path)))
    }

    pub(super) fn path(&self) -> Option<&Path> {
        self.0.as_deref()
    }

    pub(super) fn show_end(&self) {
        let Some(text) = self.path().and_then(|path| std::fs::read_to_string(path).ok()) else { return };
        let lines: Vec<&str> = text.lines().collect();
        for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
            stderr::note(line);
        }
    }
}

/// Private to this user: logs name services and images.
fn create(path: &Path) -> anyhow::Result<File> {
    let mut options = OpenOptions::new();
    let opened = options.append(true).create(true).mode(0o600).open(path);
    opened.with_context(|| format!("cannot write {}", path.display()))
}
