//! The program in the containers of the `hello` service: prints a line and waits to be stopped.

use std::io::Write;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

/// Prints one line and sleeps until SIGTERM or SIGINT. It handles both itself because, as PID 1 of a
/// container, it has no default signal handlers.
pub(crate) async fn run() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    writeln!(std::io::stdout(), "hello from {}", rustix::system::uname().nodename().to_string_lossy())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    writeln!(std::io::stdout(), "goodbye")?;
    Ok(())
}
