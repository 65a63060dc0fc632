//! One daemon in this process, until SIGTERM or SIGINT.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::worker::Pulse;
use ::worker::guard::{self, Program};
use anyhow::Context;
use common::config::{Config, RuntimeKind};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::args::WorkerOptions;
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

/// `kubeleet worker`: the guard, or with `--guarded` and without a guard the worker itself. Gives the exit code.
///
/// Makes its own async runtime, for a guard shall be small: one thread.
pub(crate) fn worker(options: &WorkerOptions) -> anyhow::Result<u8> {
    let config = Arc::new(options.settings.load()?);
    // Imagined pods end with the process that imagines them.
    let unguarded = options.no_guard || !config.guard || config.runtime == RuntimeKind::Sim;
    if options.guarded || (unguarded && !options.fence_only) {
        let runtime = tokio::runtime::Runtime::new().context("no async runtime")?;
        let ended = runtime.block_on(worker_itself(config, options.guarded));
        runtime.shutdown_background();
        return ended.map(|()| 0);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("no async runtime")?;
    runtime.block_on(async {
        if options.fence_only {
            return Ok(guard::fence_only(config).await.map(|()| 0)?);
        }
        let path = std::env::current_exe().context("finding this program")?;
        let arguments = std::env::args_os().skip(1).chain(["--guarded".into()]).collect();
        Ok(guard::run(config, Program { path, arguments }).await?)
    })
}

async fn worker_itself(config: Arc<Config>, guarded: bool) -> anyhow::Result<()> {
    let pulse = match guarded {
        true => Pulse::to_guard().context("--guarded is for workers that `kubeleet worker` has started")?,
        false => Pulse::none(),
    };
    let shutdown = CancellationToken::new();
    cancel_on_signal(shutdown.clone())?;
    Ok(::worker::run_guarded(config, pulse, shutdown).await?)
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
