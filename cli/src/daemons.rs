//! One daemon in this process, until SIGTERM or SIGINT.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ::api::metrics::MetricsServer;
use ::proxy::Start;
use ::proxy::listening::Listening;
use ::worker::supervisor::{self, Program};
use ::worker::{LivenessPipe, NodeProblems};
use anyhow::Context;
use daemon::config::{Config, MetricsListen, RuntimeKind, Serves};
use store::{LinkOptions, Severity, Store};
use tokio_util::sync::CancellationToken;

use crate::daemon_options::{ProxyOptions, WorkerOptions};
use crate::settings::SettingFlags;
use crate::signal;
use crate::take_over;

/// A daemon also starts without Redis.
const SERVER_CHECK_TIMEOUT: Duration = Duration::from_secs(3);

const SCHEDULER_METRICS_PORT: u16 = 7071;
const WORKER_METRICS_PORT: u16 = 7072;
const PROXY_METRICS_PORT: u16 = 7073;
const METRICS_RETRY: Duration = Duration::from_secs(5);
/// The predecessor will end soon.
const FORMER_METRICS_RETRY: Duration = Duration::from_millis(100);

pub(crate) async fn api(flags: &SettingFlags) -> anyhow::Result<()> {
    let config = Arc::new(flags.load(Serves::Api)?);
    let shutdown = signal::shutdown()?;
    check_redis(&config).await?;
    Ok(::api::run(config, shutdown).await?)
}

pub(crate) async fn scheduler(flags: &SettingFlags) -> anyhow::Result<()> {
    let config = Arc::new(flags.load(Serves::Metrics)?);
    let shutdown = signal::shutdown()?;
    check_redis(&config).await?;
    serve_metrics(&config, SCHEDULER_METRICS_PORT, &shutdown, |_| ()).await;
    Ok(::scheduler::run(config, shutdown).await?)
}

/// Serves pods from its last known state without Redis.
pub(crate) async fn proxy(options: &ProxyOptions) -> anyhow::Result<()> {
    let config = Arc::new(options.settings.load(Serves::Metrics)?);
    let shutdown = signal::shutdown()?;
    daemon::file_limit::raise();
    let listening = Listening::from(shutdown);
    tokio::spawn(take_over::NextProcess::of_this_process()?.start_when_asked(listening.stopped()));
    let start = if options.take_over { Start::TakeOver } else { Start::Alone };
    match start {
        Start::Alone => serve_metrics(&config, PROXY_METRICS_PORT, &listening.stopped(), |_| ()).await,
        Start::TakeOver => {
            ::api::metrics::keep_measurements();
            // The previous process still serves its own metrics for a moment.
            let retry = retry_metrics(Arc::clone(&config), PROXY_METRICS_PORT, FORMER_METRICS_RETRY, |_| ());
            tokio::spawn(serve_later(retry, listening.stopped()));
        }
    }
    Ok(::proxy::run(config, start, listening, take_over::tell_systemd).await?)
}

/// Returns the exit code. A supervisor must be small, so its runtime has one thread.
pub(crate) fn worker(options: &WorkerOptions) -> anyhow::Result<u8> {
    let serves = if options.fence_only { Serves::Nothing } else { Serves::Metrics };
    let config = Arc::new(options.settings.load(serves)?);
    // Simulated pods end with their process, so a supervisor has nothing to stop.
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
    let shutdown = signal::shutdown()?;
    // Concurrently: the worker must guard its pods whatever Redis it finds.
    let checked = Arc::clone(&config);
    tokio::spawn(async move {
        if let Err(error) = check_redis(&checked).await {
            tracing::error!("{error:#}");
        }
    });
    let problems = NodeProblems::default();
    let noted = problems.clone();
    let note = move |problem| noted.set("metrics", problem);
    serve_metrics(&config, WORKER_METRICS_PORT, &shutdown, note).await;
    Ok(::worker::run_supervised(config, pipe, problems, shutdown).await?)
}

/// Without an answer, nothing is reported.
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

/// The address is bound before the daemon starts, so that no measurement is lost. If it is in use, the daemon
/// runs without metrics: pods must not move for that.
async fn serve_metrics(
    config: &Arc<Config>,
    default_port: u16,
    shutdown: &CancellationToken,
    note: impl Fn(Option<String>) + Send + 'static,
) {
    match bind_metrics(config, default_port).await {
        Ok(None) => {}
        Ok(Some(server)) => drop(tokio::spawn(server.run(shutdown.clone()))),
        Err(problem) => {
            tracing::error!("{problem}");
            note(Some(problem));
            ::api::metrics::keep_measurements();
            let retry = retry_metrics(Arc::clone(config), default_port, METRICS_RETRY, note);
            tokio::spawn(serve_later(retry, shutdown.clone()));
        }
    }
}

async fn retry_metrics(
    config: Arc<Config>,
    default_port: u16,
    interval: Duration,
    note: impl Fn(Option<String>) + Send + 'static,
) -> Option<MetricsServer> {
    loop {
        tokio::time::sleep(interval).await;
        if let Ok(server) = bind_metrics(&config, default_port).await {
            note(None);
            return server;
        }
    }
}

async fn serve_later(server: impl Future<Output = Option<MetricsServer>>, shutdown: CancellationToken) {
    let server = tokio::select! {
        () = shutdown.cancelled() => return,
        server = server => server,
    };
    if let Some(server) = server {
        server.run(shutdown).await;
    }
}

/// `None` if metrics are off.
async fn bind_metrics(config: &Config, default_port: u16) -> Result<Option<MetricsServer>, String> {
    let Some(address) = metrics_address(config, default_port) else { return Ok(None) };
    let bound = MetricsServer::bind(address, config.token.as_ref(), config.read_token.as_ref()).await;
    bound.map(Some).map_err(|error| {
        format!(
            "its metrics are not served: cannot listen on {address}: {error}; this is tried again. Stop the process that \
             uses the address, or set KUBELEET_METRICS_LISTEN to another one, or to off"
        )
    })
}

fn metrics_address(config: &Config, default_port: u16) -> Option<SocketAddr> {
    match config.metrics_listen {
        MetricsListen::Off => None,
        MetricsListen::Default => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, default_port))),
        MetricsListen::Address { ip, port, .. } => Some((ip, port.unwrap_or(default_port)).into()),
    }
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
    async fn a_daemon_whose_address_for_metrics_is_in_use_goes_on_and_serves_them_later() {
        let holder = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken = holder.local_addr().unwrap();
        for config in [config(None), config(Some(&taken.to_string()))] {
            let why = bind_metrics(&config, taken.port()).await.err().unwrap();
            for part in ["KUBELEET_METRICS_LISTEN", &taken.to_string(), "Stop the process", "off"] {
                assert!(why.contains(part), "{why}");
            }
        }
        let named = Arc::new(config(Some(&taken.to_string())));
        let problems = NodeProblems::default();
        let noted = problems.clone();
        let note = move |problem| noted.set("metrics", problem);
        serve_metrics(&named, 0, &CancellationToken::new(), note).await;
        let interval = Duration::from_millis(10);
        let retried = tokio::spawn(retry_metrics(named, 0, interval, |problem| assert_eq!(problem, None)));
        drop(holder);
        let server = tokio::time::timeout(Duration::from_secs(30), retried).await.unwrap().unwrap();
        assert_eq!(server.unwrap().address(), taken);
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
