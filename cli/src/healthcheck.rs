//! `kubeleet healthcheck`: for images without a shell. Healthy is an API that is ready, a scheduler that gives signs of
//! life, or a worker that beats.

use std::time::Duration;

use anyhow::bail;
use common::config::Config;
use common::node::NodeState;
use common::store::{LinkOptions, Store};

use crate::args::Daemon;
use crate::settings::SettingFlags;

const PATIENCE: Duration = Duration::from_secs(3);

/// Succeeds when this configuration's API answers `/readyz` with 200, its scheduler was heard of lately, or its node's
/// heartbeat is fresh; with a daemon named, only if it is that one.
pub(crate) async fn run(daemon: Option<Daemon>, flags: &SettingFlags) -> anyhow::Result<()> {
    let config = flags.load()?;
    let wanted = |which| daemon.is_none_or(|daemon| daemon == which);
    let mut ill = Vec::new();
    if wanted(Daemon::Api) {
        match api(&config).await {
            Ok(()) => return Ok(()),
            Err(why) => ill.push(why),
        }
    }
    let store = Store::new(config.redis.clone(), LinkOptions::default());
    if wanted(Daemon::Scheduler) {
        match in_time(scheduler(&store, &config)).await {
            Ok(()) => return Ok(()),
            Err(why) => ill.push(why),
        }
    }
    if wanted(Daemon::Worker) {
        match in_time(worker(&store, &config)).await {
            Ok(()) => return Ok(()),
            Err(why) => ill.push(why),
        }
    }
    bail!("not healthy: {}", ill.join("; "))
}

async fn api(config: &Config) -> Result<(), String> {
    let url = format!("http://{}/readyz", config.listen);
    let client =
        reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().map_err(|e| e.to_string())?;
    match client.get(&url).send().await {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => Err(format!("{url} answers {}", answer.status())),
        Err(_) => Err(format!("nothing answers at {url}")),
    }
}

async fn in_time(check: impl Future<Output = anyhow::Result<()>>) -> Result<(), String> {
    match tokio::time::timeout(PATIENCE, check).await {
        Ok(checked) => checked.map_err(|error| error.to_string()),
        Err(_) => Err("Redis does not answer".to_owned()),
    }
}

async fn scheduler(store: &Store, config: &Config) -> anyhow::Result<()> {
    let (known, now) = (store.schedulers().await?, store.redis_now().await?);
    let ours = known.into_iter().filter(|(id, _)| id.is_of(&config.node));
    match ours.map(|(_, seen)| Duration::from_millis(now.saturating_sub(seen))).min() {
        Some(age) if age <= scheduler::silent_after(&config.timing) => Ok(()),
        Some(age) => bail!("the scheduler of {} was silent for {} s", config.node, age.as_secs()),
        None => bail!("there is no scheduler of {}", config.node),
    }
}

async fn worker(store: &Store, config: &Config) -> anyhow::Result<()> {
    let Some(node) = store.node(&config.node).await? else {
        bail!("there is no node {}", config.node);
    };
    let age = Duration::from_millis(store.redis_now().await?.saturating_sub(node.beat));
    if node.state == NodeState::Alive && age <= config.timing.dead_after {
        return Ok(());
    }
    bail!("the last heartbeat of {} is {} s old", config.node, age.as_secs())
}
