//! The program in the sandbox of a pod with several containers: it holds their network and waits to be
//! stopped.

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

/// Sleeps until SIGTERM or SIGINT. Handles both itself because, as PID 1 of a container, it has no default
/// signal handlers.
pub(crate) async fn run() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
