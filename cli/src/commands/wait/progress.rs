//! How waiting looks: one line that changes, or, where lines can not change, a line for each change.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::{Exit, note};

/// The line of one thing that is waited for.
pub(super) struct Progress {
    subject: String,
    live: Option<ProgressBar>,
    last: String,
}

impl Progress {
    /// Nothing is shown yet.
    pub(super) fn begin(subject: String) -> Self {
        let live = can_change_lines().then(|| {
            let style = ProgressStyle::with_template("{spinner} {wide_msg}").expect("a valid template");
            let bar = ProgressBar::new_spinner().with_style(style);
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        Self { subject, live, last: String::new() }
    }

    /// How it is now.
    pub(super) fn show(&mut self, line: &str) {
        let text = format!("{}: {line}", self.subject);
        match &self.live {
            Some(bar) => bar.set_message(text),
            None if text == self.last => {}
            None => {
                note(&text);
                self.last = text;
            }
        }
    }

    /// The last line, which ends in a clear word.
    pub(super) fn end(&mut self, line: &str, word: &str) {
        if let Some(bar) = &self.live {
            bar.finish_and_clear();
        }
        let line = if line.is_empty() { String::new() } else { format!("{line}: ") };
        note(&format!("{}: {line}{word}", self.subject));
    }

    /// The same, and how the command ends.
    pub(super) fn finish(mut self, line: &str, word: &str, exit: Exit) -> Exit {
        self.end(line, word);
        exit
    }
}

fn can_change_lines() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stderr().is_terminal() && !set("NO_COLOR") && !dumb
}
