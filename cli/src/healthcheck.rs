//! `kubeleet healthcheck`: for images without a shell. Healthy is an API that is ready, or a worker that beats.

use std::time::Duration;

use anyhow::bail;
use common::node::NodeState;
use common::store::{LinkOptions, Store};

use crate::settings::SettingFlags;

const PATIENCE: Duration = Duration::from_secs(3);

/// Succeeds when this configuration's API answers `/readyz` with 200, or its node's heartbeat is fresh.
pub(crate) async fn run(flags: &SettingFlags) -> anyhow::Result<()> {
    let config = flags.load()?;
    let url = format!("http://{}/readyz", config.listen);
    let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build()?;
    let api = match client.get(&url).send().await {
        Ok(answer) if answer.status().is_success() => return Ok(()),
        Ok(answer) => format!("{url} answers {}", answer.status()),
        Err(_) => format!("nothing answers at {url}"),
    };
    let store = Store::new(config.redis.clone(), LinkOptions::default());
    let heartbeat = async {
        let node = store.node(&config.node).await?;
        anyhow::Ok((node, store.redis_now().await?))
    };
    match tokio::time::timeout(PATIENCE, heartbeat).await {
        Ok(Ok((Some(node), now))) => {
            let age = Duration::from_millis(now.saturating_sub(node.beat));
            if node.state == NodeState::Alive && age <= config.timing.dead_after {
                return Ok(());
            }
            bail!("not healthy: {api}; the last heartbeat of {} is {} s old", config.node, age.as_secs())
        }
        Ok(Ok((None, _))) => bail!("not healthy: {api}; there is no node {}", config.node),
        Ok(Err(error)) => bail!("not healthy: {api}; {error}"),
        Err(_) => bail!("not healthy: {api}; Redis does not answer"),
    }
}
