//! The next proxy process.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context;
use sd_notify::NotifyState;
use tokio::process::Command;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

const TAKE_OVER: &str = "--take-over";

pub(crate) struct NextProcess {
    hang_up: Signal,
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl NextProcess {
    /// An upgrade replaces the program's file. Its path may be a link to the current version, so it is kept
    /// as it was called.
    pub(crate) fn of_this_process() -> anyhow::Result<Self> {
        let called = std::env::args_os().next().map(PathBuf::from).filter(|path| path.is_absolute());
        let program = match called {
            Some(program) => program,
            None => std::env::current_exe().context("finding this program")?,
        };
        let given = std::env::args_os().skip(1).filter(|argument| argument != TAKE_OVER);
        let arguments = given.chain([TAKE_OVER.into()]).collect();
        let hang_up = signal(SignalKind::hangup()).context("listening for SIGHUP")?;
        Ok(Self { hang_up, program, arguments })
    }

    /// One process at a time.
    pub(crate) async fn start_when_asked(mut self, taken: CancellationToken) {
        while let Some(Some(())) = taken.run_until_cancelled(self.hang_up.recv()).await {
            if std::process::id() == 1 {
                tracing::error!(
                    "SIGHUP: this process is the first of its container, which ends with it. Start another container \
                     with {TAKE_OVER}, the network of the host, and the directory of the same socket"
                );
                continue;
            }
            let program = self.program.display();
            tracing::info!("SIGHUP: starting {program}, which takes the place of this process");
            let mut next = match Command::new(&self.program).args(&self.arguments).spawn() {
                Ok(next) => next,
                Err(error) => {
                    tracing::error!("{program} cannot be started: {error}; this process serves on");
                    continue;
                }
            };
            // Once it has the sockets it outlives this process.
            if let Some(ended) = taken.run_until_cancelled(next.wait()).await {
                let ended = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                tracing::error!("the next process has ended ({ended}): this one serves on; see what it said");
            }
        }
    }
}

/// If systemd started this process or its predecessor.
pub(crate) fn tell_systemd() {
    let states = [NotifyState::MainPid(std::process::id()), NotifyState::Ready];
    if let Err(error) = sd_notify::notify(&states) {
        tracing::warn!("systemd cannot be told that this process serves: {error}");
    }
}
