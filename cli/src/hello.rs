//! What a container of the `hello` service runs: it says so, and waits to be stopped.

use std::io::Write;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

/// Prints one line and sleeps until SIGTERM or SIGINT. As PID 1 of a container it must listen for both itself.
pub(crate) async fn run() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    writeln!(std::io::stdout(), "hello from {}", rustix::system::uname().nodename().to_string_lossy())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    writeln!(std::io::stdout(), "goodbye")?;
    Ok(())
}
