//! Ends this process on signals.

use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// `timeout` and a terminal may each send one: such signals count as one.
const REPEATED_SIGNAL_WINDOW: Duration = Duration::from_secs(1);

/// Returns a future that ends at the first SIGTERM or SIGINT. PID 1 of a container has no default handlers.
pub(crate) fn stop_requested() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// The first SIGTERM or SIGINT cancels the token; a second one ends the process at once.
pub(crate) fn shutdown() -> anyhow::Result<CancellationToken> {
    let shutdown = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let cancelled = shutdown.clone();
    tokio::spawn(async move {
        let mut first: Option<Instant> = None;
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            match first {
                None => {
                    tracing::info!("shutting down; send the signal again to stop at once");
                    first = Some(Instant::now());
                    cancelled.cancel();
                }
                Some(first) if first.elapsed() > REPEATED_SIGNAL_WINDOW => std::process::exit(130),
                Some(_) => {}
            }
        }
    });
    Ok(shutdown)
}
