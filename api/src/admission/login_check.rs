//! A worker checks a login with its registry before the login is stored.

use std::time::Duration;

use model::RedisMillis;
use model::ids::NodeName;
use model::node::timing::Timing;
use model::node::{Node, NodeKind};
use model::value::registry::{LoginVerdict, StoredLogin};
use model::value::secret_key::SecretKey;
use store::{NodeQuestion, Store, StoreError};

use crate::state::AppState;
use crate::status::views;

const TIMEOUT: Duration = Duration::from_secs(8);

pub(crate) async fn verdict(app: &AppState, login: &StoredLogin, key: &SecretKey) -> LoginVerdict {
    let Ok(now) = app.store.redis_now().await else {
        return LoginVerdict::Unknown("no node could be asked".to_owned());
    };
    let Some(node) = node_to_ask(&app.nodes().await, key, now, &app.config.timing) else {
        return LoginVerdict::Unknown("no node with a container engine and this key is ready".to_owned());
    };
    match ask(&app.store, &node, login).await {
        Ok(Some(verdict)) => verdict,
        Ok(None) => LoginVerdict::Unknown(format!("node {node} had no answer within {TIMEOUT:?}")),
        Err(error) => LoginVerdict::Unknown(format!("node {node} could not be asked: {error}")),
    }
}

fn node_to_ask(nodes: &[Node], key: &SecretKey, now: RedisMillis, timing: &Timing) -> Option<NodeName> {
    let has_key = |node: &Node| {
        let settings = node.facts.settings.as_ref();
        settings.is_some_and(|settings| settings.secret_key.as_deref() == Some(key.id()))
    };
    let mut able = nodes.iter().filter(|node| {
        node.kind == NodeKind::Kubeleet
            && node.facts.runtime == "docker"
            && has_key(node)
            && views::is_ready(node, now, timing.fence_after)
    });
    able.next().map(|node| node.name.clone())
}

async fn ask(
    store: &Store,
    node: &NodeName,
    login: &StoredLogin,
) -> Result<Option<LoginVerdict>, StoreError> {
    let answer = store.ask(node, NodeQuestion::CheckLogin(login.clone())).await?.whole(TIMEOUT).await?;
    Ok(answer.and_then(|(output, _)| serde_json::from_slice(&output).ok()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use model::node::{NodeSettings, NodeState, Resources};
    use testkit::fixtures;

    use super::*;

    #[test]
    fn the_node_that_is_asked_is_ready_and_has_the_key_and_an_engine() {
        let key = SecretKey::parse(&"a".repeat(64)).unwrap();
        let node = |name: &str, runtime: &str, has_key: bool| {
            let mut node = fixtures::node(name, Resources::default());
            let secret_key = has_key.then(|| key.id().to_owned());
            node.facts.runtime = runtime.to_owned();
            node.facts.settings = Some(NodeSettings { secret_key, ..NodeSettings::default() });
            node.beat = 100_000;
            node
        };
        let mut dead = node("dead", "docker", true);
        dead.state = NodeState::Dead;
        let mut silent = node("silent", "docker", true);
        silent.beat = 1;
        let mut nodes =
            vec![dead, silent, node("process", "process", true), node("keyless", "docker", false)];
        let asked = |nodes: &[Node]| node_to_ask(nodes, &key, 100_000, &Timing::default());
        assert_eq!(asked(&nodes), None);
        nodes.push(node("able", "docker", true));
        assert_eq!(asked(&nodes).unwrap().as_str(), "able");
    }
}
