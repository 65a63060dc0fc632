//! Progress of `--wait` on standard error.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use output::log_lines::allows_styling;
use output::stderr::note;

use crate::exit::Exit;

pub(super) struct GoalProgress {
    subject: String,
    spinner: Option<ProgressBar>,
    last_line: String,
}

impl GoalProgress {
    pub(super) fn start(subject: String) -> Self {
        let spinner = allows_styling(&std::io::stderr()).then(|| {
            let style = ProgressStyle::with_template("{spinner} {wide_msg}").expect("a valid template");
            let bar = ProgressBar::new_spinner().with_style(style).with_message(subject.clone());
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        Self { subject, spinner, last_line: String::new() }
    }

    pub(super) fn show(&mut self, line: &str) {
        let text = format!("{}: {line}", self.subject);
        match &self.spinner {
            Some(bar) => bar.set_message(text),
            None if text == self.last_line => {}
            None => {
                note(&text);
                self.last_line = text;
            }
        }
    }

    pub(super) fn end(&mut self, line: &str, word: &str) {
        if let Some(bar) = &self.spinner {
            bar.finish_and_clear();
        }
        // A long reason is already shown. Scripts may rely on the success line.
        let is_failure = ["failed", "timed out"].contains(&word);
        let is_shown =
            is_failure && self.spinner.is_none() && self.last_line == format!("{}: {line}", self.subject);
        let line = if line.is_empty() || is_shown { String::new() } else { format!("{line}: ") };
        note(&format!("{}: {line}{word}", self.subject));
    }

    pub(super) fn finish(mut self, line: &str, word: &str, exit: Exit) -> Exit {
        self.end(line, word);
        exit
    }
}
