//! The program in the sandbox of a pod with several containers, which holds their network.

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

/// Handles both signals itself: as PID 1 of a container it has no default handlers.
pub(crate) async fn run() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
