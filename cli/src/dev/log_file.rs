//! Log file of `dev`'s daemons: the terminal shows the banner and events of services.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use daemon::config::Config;

use output::stderr;

pub(super) const NAME: &str = "dev.log";
const SHOWN_LINES: usize = 30;

/// Path of the log file; `None` if logs go to standard error.
pub(super) struct LogFile(Option<PathBuf>);

impl LogFile {
    /// Starts logging into a file in this directory, or to the terminal if `verbose`.
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

    /// Prints the last lines, before the file is removed with its directory.
    pub(super) fn show_end(&self) {
        let Some(text) = self.path().and_then(|path| std::fs::read_to_string(path).ok()) else { return };
        let lines: Vec<&str> = text.lines().collect();
        for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
            stderr::note(line);
        }
    }
}

/// Opens the file at its end, private to this user: logs name services and images.
fn create(path: &Path) -> anyhow::Result<File> {
    let mut options = OpenOptions::new();
    let opened = options.append(true).create(true).mode(0o600).open(path);
    opened.with_context(|| format!("cannot write {}", path.display()))
}
