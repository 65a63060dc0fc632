//! `kubeleet healthcheck`, for images without a shell.

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use daemon::config::{Config, Serves};
use futures_util::FutureExt;
use model::node::NodeState;
use store::{LinkOptions, Store};

use crate::settings::SettingFlags;

const CHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// A daemon that can be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Daemon {
    /// Its API answers /readyz with success.
    Api,
    /// It reported to Redis recently.
    Scheduler,
    /// Its heartbeat is fresh.
    Worker,
    /// It answers on its socket.
    Proxy,
}

/// Arguments of `healthcheck`.
#[derive(Args)]
pub(crate) struct HealthcheckOptions {
    /// The daemon to check; without it, one healthy daemon is enough
    pub(crate) daemon: Option<Daemon>,
    #[command(flatten)]
    pub(crate) settings: SettingFlags,
}

/// Without a daemon, any healthy one of the four is enough.
pub(crate) async fn run(daemon: Option<Daemon>, flags: &SettingFlags) -> anyhow::Result<()> {
    let config = flags.load(Serves::Nothing)?;
    let store = Store::new(config.redis.clone(), LinkOptions::default());
    let checks = [
        (Daemon::Api, check_api(&config).boxed_local()),
        (Daemon::Scheduler, with_timeout(check_scheduler(&store, &config)).boxed_local()),
        (Daemon::Worker, with_timeout(check_worker(&store, &config)).boxed_local()),
        (Daemon::Proxy, check_proxy(&config).boxed_local()),
    ];
    let mut problems = Vec::new();
    for (candidate, check) in checks {
        if daemon.is_some_and(|daemon| daemon != candidate) {
            continue;
        }
        match check.await {
            Ok(()) => return Ok(()),
            Err(problem) => problems.push(problem),
        }
    }
    bail!("not healthy: {}", problems.join("; "))
}

async fn check_api(config: &Config) -> Result<(), String> {
    let url = format!("http://{}/readyz", config.listen);
    let client =
        reqwest::Client::builder().timeout(CHECK_TIMEOUT).no_proxy().build().map_err(|e| e.to_string())?;
    match client.get(&url).send().await {
        Ok(response) if response.status().is_success() => Ok(()),
        Ok(response) => Err(format!("{url} answered {}", response.status())),
        Err(_) => Err(format!("no API answers at {url}")),
    }
}

pub(crate) async fn check_proxy(config: &Config) -> Result<(), String> {
    let Some(socket) = &config.proxy_socket else { return Err("KUBELEET_PROXY_SOCKET is off".to_owned()) };
    match tokio::time::timeout(CHECK_TIMEOUT, proxy::ping(socket)).await {
        Ok(result) => result,
        Err(_) => Err(format!("the proxy did not answer within {} s", CHECK_TIMEOUT.as_secs())),
    }
}

async fn with_timeout(check: impl Future<Output = anyhow::Result<()>>) -> Result<(), String> {
    match tokio::time::timeout(CHECK_TIMEOUT, check).await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err(format!("Redis did not answer within {} s", CHECK_TIMEOUT.as_secs())),
    }
}

async fn check_scheduler(store: &Store, config: &Config) -> anyhow::Result<()> {
    let (schedulers, now) = (store.schedulers().await?, store.redis_now().await?);
    let own = schedulers.into_iter().filter(|(id, _)| id.belongs_to(&config.node));
    match own.map(|(_, seen)| Duration::from_millis(now.saturating_sub(seen))).min() {
        Some(age) if age <= scheduler::silent_after(config) => Ok(()),
        Some(age) => {
            bail!("the scheduler of node {} last reported {} s ago", config.node, age.as_secs())
        }
        None => bail!("node {} has no scheduler", config.node),
    }
}

async fn check_worker(store: &Store, config: &Config) -> anyhow::Result<()> {
    if let Some(why) = worker::hold_reason(config) {
        bail!("worker {} holds: {why}", config.node);
    }
    let Some(node) = store.node(&config.node).await? else {
        bail!("node {} is not registered", config.node);
    };
    let age = Duration::from_millis(store.redis_now().await?.saturating_sub(node.beat));
    if node.state == NodeState::Alive && age <= config.timing.dead_after {
        return Ok(());
    }
    bail!("the last heartbeat of node {} is {} s old", config.node, age.as_secs())
}
