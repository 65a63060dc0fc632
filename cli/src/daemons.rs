//! One daemon in this process, until SIGTERM or SIGINT.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use common::config::Config;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::settings::SettingFlags;

/// Signals this close together are one wish: `timeout` and a terminal may each send one.
const SAME_WISH: Duration = Duration::from_secs(1);

/// `kubeleet api`.
pub(crate) async fn api(flags: &SettingFlags) -> anyhow::Result<()> {
    run(flags, |config, shutdown| async move { Ok(::api::run(config, shutdown).await?) }).await
}

/// `kubeleet scheduler`.
pub(crate) async fn scheduler(flags: &SettingFlags) -> anyhow::Result<()> {
    run(flags, |config, shutdown| async move { Ok(::scheduler::run(config, shutdown).await?) }).await
}

/// `kubeleet worker`.
pub(crate) async fn worker(flags: &SettingFlags) -> anyhow::Result<()> {
    run(flags, |config, shutdown| async move { Ok(::worker::run(config, shutdown).await?) }).await
}

async fn run<F, Fut>(flags: &SettingFlags, daemon: F) -> anyhow::Result<()>
where
    F: FnOnce(Arc<Config>, CancellationToken) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let config = Arc::new(flags.load()?);
    let shutdown = CancellationToken::new();
    cancel_on_signal(shutdown.clone())?;
    daemon(config, shutdown).await
}

/// The first SIGTERM or SIGINT asks for an orderly end; the second ends at once.
pub(crate) fn cancel_on_signal(shutdown: CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    tokio::spawn(async move {
        let mut first: Option<Instant> = None;
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            match first {
                None => {
                    tracing::info!("shutting down; once more to stop at once");
                    first = Some(Instant::now());
                    shutdown.cancel();
                }
                Some(first) if first.elapsed() > SAME_WISH => std::process::exit(130),
                Some(_) => {}
            }
        }
    });
    Ok(())
}
