//! Where the daemons of `dev` log: a file, for the terminal shows the banner and what happens to services.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use daemon::config::Config;

use output::stderr;

/// The name of the file in the directory of the cluster.
pub(super) const NAME: &str = "dev.log";
/// Lines that are shown of it after a failure.
const SHOWN_LINES: usize = 30;

/// The file with the logs; `None` if they are on standard error.
pub(super) struct LogFile(Option<PathBuf>);

impl LogFile {
    /// Starts logging, into a file of this directory unless the terminal is to show all.
    pub(super) fn start(directory: &Path, config: &Config, verbose: bool) -> anyhow::Result<Self> {
        if verbose {
            daemon::telemetry::init(&config.log, config.log_json);
            return Ok(Self(None));
        }
        let path = directory.join(NAME);
        daemon::telemetry::init_to_file(&config.log, config.log_json, create(&path)?);
        Ok(Self(Some(path)))
    }

    /// Returns where the logs are.
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

/// Opens the file at its end. Logs name services and images, which other users need not know.
fn create(path: &Path) -> anyhow::Result<File> {
    let mut options = OpenOptions::new();
    let opened = options.append(true).create(true).mode(0o600).open(path);
    opened.with_context(|| format!("cannot write {}", path.display()))
}
