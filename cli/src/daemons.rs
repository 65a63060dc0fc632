//! `kubeleet api`, `kubeleet scheduler`, `kubeleet worker` and `kubeleet proxy`: one daemon in this process,
//! until SIGTERM or SIGINT.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::api::metrics::MetricsServer;
use ::proxy::Start;
use ::proxy::listening::Listening;
use ::worker::LivenessPipe;
use ::worker::supervisor::{self, Program};
use anyhow::Context;
use common::config::{Config, MetricsListen, RuntimeKind, Serves};
use common::store::{LinkOptions, Severity, Store};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::args::{ProxyOptions, WorkerOptions};
use crate::settings::{BadSettings, SettingFlags};
use crate::take_over;

/// Signals within this time count as one: `timeout` and a terminal may each send one.
const REPEATED_SIGNAL_WINDOW: Duration = Duration::from_secs(1);

/// How long to ask Redis about itself. A daemon starts without Redis as well.
const SERVER_CHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// Where the scheduler serves its metrics unless the operator says otherwise.
const SCHEDULER_METRICS_PORT: u16 = 7071;
/// Where the worker serves its metrics unless the operator says otherwise.
const WORKER_METRICS_PORT: u16 = 7072;
/// Where the proxy serves its metrics unless the operator says otherwise.
const PROXY_METRICS_PORT: u16 = 7073;
/// How long the metrics of a proxy are tried for that takes the place of another.
const FORMER_METRICS_END_WITHIN: Duration = Duration::from_secs(10);
const METRICS_RETRY: Duration = Duration::from_millis(100);

/// Runs `kubeleet api`.
pub(crate) async fn api(flags: &SettingFlags) -> anyhow::Result<()> {
    let config = Arc::new(flags.load(Serves::Api)?);
    let shutdown = CancellationToken::new();
    cancel_on_signal(shutdown.clone())?;
    check_redis(&config).await?;
    Ok(::api::run(config, shutdown).await?)
}

/// Runs `kubeleet scheduler`.
pub(crate) async fn scheduler(flags: &SettingFlags) -> anyhow::Result<()> {
    let config = Arc::new(flags.load(Serves::Metrics)?);
    let shutdown = CancellationToken::new();
    cancel_on_signal(shutdown.clone())?;
    check_redis(&config).await?;
    with_metrics(&config, SCHEDULER_METRICS_PORT, &shutdown, async {
        Ok(::scheduler::run(Arc::clone(&config), shutdown.clone()).await?)
    })
    .await
}

/// Runs `kubeleet proxy`. It starts without Redis as well: pods are served as they were known last.
pub(crate) async fn proxy(options: &ProxyOptions) -> anyhow::Result<()> {
    let config = Arc::new(options.settings.load(Serves::Metrics)?);
    let shutdown = CancellationToken::new();
    cancel_on_signal(shutdown.clone())?;
    common::file_limit::raise();
    let listening = Listening::from(shutdown);
    tokio::spawn(take_over::NextProcess::of_this_process()?.start_when_asked(listening.stopped()));
    let start = if options.take_over { Start::TakeOver } else { Start::Alone };
    let run = ::proxy::run(Arc::clone(&config), start, listening.clone(), take_over::tell_systemd);
    let run = async { Ok(run.await?) };
    match start {
        Start::Alone => with_metrics(&config, PROXY_METRICS_PORT, &listening.stopped(), run).await,
        Start::TakeOver => {
            ::api::metrics::keep_measurements();
            tokio::spawn(metrics_after_another(Arc::clone(&config), listening.stopped()));
            run.await
        }
    }
}

/// Serves the metrics of a proxy as soon as the process before it does so no longer.
async fn metrics_after_another(config: Arc<Config>, stopped: CancellationToken) {
    let Some(address) = metrics_address(&config, PROXY_METRICS_PORT) else { return };
    let begun = Instant::now();
    loop {
        match MetricsServer::bind(address, config.token.as_ref(), config.read_token.as_ref()).await {
            Ok(server) => return server.run(stopped).await,
            Err(error) if begun.elapsed() > FORMER_METRICS_END_WITHIN => {
                return tracing::warn!("metrics are not served: cannot listen on {address}: {error}");
            }
            Err(_) => tokio::time::sleep(METRICS_RETRY).await,
        }
    }
}

/// Runs `kubeleet worker`: the supervisor, or with `--guarded` or without a supervisor the worker itself.
/// Returns the exit code.
///
/// Builds its own async runtime, because a supervisor must be small: one thread.
pub(crate) fn worker(options: &WorkerOptions) -> anyhow::Result<u8> {
    let serves = if options.fence_only { Serves::Nothing } else { Serves::Metrics };
    let config = Arc::new(options.settings.load(serves)?);
    // Simulated pods end with the process that simulates them, so a supervisor has nothing to stop.
    let unguarded = options.no_guard || !config.guard || config.runtime == RuntimeKind::Sim;
    if options.guarded || (unguarded && !options.fence_only) {
        let runtime = tokio::runtime::Runtime::new().context("cannot start the async runtime")?;
        let ended = runtime.block_on(worker_itself(config, options.guarded));
        runtime.shutdown_background();
        return ended.map(|()| 0);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the async runtime")?;
    runtime.block_on(async {
        if options.fence_only {
            return Ok(supervisor::fence_only(config).await.map(|()| 0)?);
        }
        let path = std::env::current_exe().context("finding this program")?;
        let arguments = std::env::args_os().skip(1).chain(["--guarded".into()]).collect();
        Ok(supervisor::run(config, Program { path, arguments }).await?)
    })
}

async fn worker_itself(config: Arc<Config>, guarded: bool) -> anyhow::Result<()> {
    let pipe = match guarded {
        true => LivenessPipe::to_supervisor()
            .context("--guarded is for workers that `kubeleet worker` has started")?,
        false => LivenessPipe::none(),
    };
    let shutdown = CancellationToken::new();
    cancel_on_signal(shutdown.clone())?;
    // Beside the worker: it must guard its pods whatever Redis it finds.
    let checked = Arc::clone(&config);
    tokio::spawn(async move {
        if let Err(error) = check_redis(&checked).await {
            tracing::error!("{error:#}");
        }
    });
    with_metrics(&config, WORKER_METRICS_PORT, &shutdown, async {
        Ok(::worker::run_supervised(Arc::clone(&config), pipe, shutdown.clone()).await?)
    })
    .await
}

/// Logs what an operator should change about the Redis server. Without an answer, nothing is known and
/// nothing is wrong.
///
/// # Errors
/// If kubeleet cannot work with this Redis.
async fn check_redis(config: &Config) -> anyhow::Result<()> {
    let store = Store::new(config.redis.clone(), LinkOptions::default());
    let concerns = match tokio::time::timeout(SERVER_CHECK_TIMEOUT, store.server_concerns()).await {
        Ok(Ok(concerns)) => concerns,
        Ok(Err(_)) | Err(_) => return Ok(()),
    };
    for concern in concerns {
        if concern.severity == Severity::Unusable {
            anyhow::bail!(concern.text);
        }
        tracing::warn!("{}", concern.text);
    }
    Ok(())
}

/// Runs a daemon, and serves its metrics in a task of its own. Once the daemon has started, no failure to
/// serve them ends it.
///
/// # Errors
/// Before the daemon starts: [`BadSettings`] if the address that the operator named cannot be bound. After
/// that, only the errors of the daemon.
async fn with_metrics(
    config: &Config,
    default_port: u16,
    shutdown: &CancellationToken,
    daemon: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    if let Some(server) = bind_metrics(config, default_port).await? {
        tokio::spawn(server.run(shutdown.clone()));
    }
    daemon.await
}

/// Binds the address for metrics before the daemon starts, so that no measurement is lost.
async fn bind_metrics(config: &Config, default_port: u16) -> Result<Option<MetricsServer>, BadSettings> {
    let Some(address) = metrics_address(config, default_port) else { return Ok(None) };
    let bound = MetricsServer::bind(address, config.token.as_ref(), config.read_token.as_ref()).await;
    match (bound, config.metrics_listen) {
        (Ok(server), _) => Ok(Some(server)),
        (Err(error), MetricsListen::Address { origin, .. }) => {
            let problem = format!(
                "cannot listen on {address}: {error}; stop the process that uses the address, name another \
                 address, or write off"
            );
            Err(BadSettings::new("KUBELEET_METRICS_LISTEN", origin, problem))
        }
        (Err(error), _) => {
            tracing::warn!(
                "metrics are not served: cannot listen on {address}: {error}; set KUBELEET_METRICS_LISTEN to \
                 another address, or to off"
            );
            Ok(None)
        }
    }
}

/// Returns where metrics are served; `None` if they are not.
fn metrics_address(config: &Config, default_port: u16) -> Option<SocketAddr> {
    match config.metrics_listen {
        MetricsListen::Off => None,
        MetricsListen::Default => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, default_port))),
        MetricsListen::Address { ip, port, .. } => Some((ip, port.unwrap_or(default_port)).into()),
    }
}

/// Cancels `shutdown` at the first SIGTERM or SIGINT. A second one ends the process at once.
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
                    tracing::info!("shutting down; send the signal again to stop at once");
                    first = Some(Instant::now());
                    shutdown.cancel();
                }
                Some(first) if first.elapsed() > REPEATED_SIGNAL_WINDOW => std::process::exit(130),
                Some(_) => {}
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::net::TcpListener;

    use testkit::fixtures;

    use super::*;

    fn config(metrics_listen: Option<&str>) -> Config {
        let setting = metrics_listen.map(|value| ("KUBELEET_METRICS_LISTEN", value));
        fixtures::config(setting.as_slice())
    }

    #[tokio::test]
    async fn a_default_address_in_use_is_skipped_and_a_named_one_is_an_error() {
        let holder = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken = holder.local_addr().unwrap();
        assert!(bind_metrics(&config(None), taken.port()).await.unwrap().is_none());
        let named = config(Some(&taken.to_string()));
        let error = bind_metrics(&named, 0).await.err().unwrap().to_string();
        for part in ["KUBELEET_METRICS_LISTEN", "a flag", &taken.to_string(), "stop the process", "off"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[tokio::test]
    async fn metrics_are_served_at_the_named_address_or_nowhere() {
        let server = bind_metrics(&config(Some("127.0.0.1:0")), 1).await.unwrap().unwrap();
        assert!(server.address().ip().is_loopback());
        let own_port = bind_metrics(&config(Some("127.0.0.1")), 0).await.unwrap().unwrap();
        assert_ne!(own_port.address().port(), 0);
        assert!(bind_metrics(&config(Some("off")), 0).await.unwrap().is_none());
        assert!(bind_metrics(&config(None), 0).await.unwrap().is_some());
    }
}
