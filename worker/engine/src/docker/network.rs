//! The bridge of a cluster's pods, on which they reach each other by name only. The host's rules match the
//! prefix of its interface's name.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use bollard::models::NetworkCreateRequest;
use model::ids::ClusterId;
use model::network::address::PoolAddress;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::client::EngineClient;
use super::deadlines::{READ, WRITE};
use super::errors::{EngineCall, EngineFailure};
use crate::digest::hex;
use crate::{RuntimeError, label};

const CREATED_ELSEWHERE_TRIES: u32 = 20;
const CREATED_ELSEWHERE_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Choice {
    /// The proxy has not reported yet whether names work, and they did before.
    #[default]
    IfThere,
    Join,
    Avoid,
}

#[derive(Default)]
pub(super) struct PodNetwork {
    choice: Mutex<Choice>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JoinedNetwork {
    pub(super) name: String,
    pub(super) resolver: Ipv4Addr,
    pub(super) domain: &'static str,
    pub(super) resolver_options: Vec<String>,
}

impl PodNetwork {
    fn choose(&self, choice: Choice) {
        *self.choice.lock() = choice;
    }

    pub(super) async fn join(
        &self,
        client: &EngineClient,
        cluster: &ClusterId,
    ) -> Result<Ipv4Addr, RuntimeError> {
        let gateway = ensure(client, cluster).await?;
        self.choose(Choice::Join);
        Ok(gateway)
    }

    pub(super) fn leave(&self) {
        self.choose(Choice::Avoid);
    }

    /// A missing network is not looked up again.
    async fn look_up(&self, client: &EngineClient, cluster: &ClusterId) -> Result<bool, RuntimeError> {
        let is_there = gateway(client, &name(cluster)).await?.is_some();
        let mut choice = self.choice.lock();
        if !is_there && *choice == Choice::IfThere {
            *choice = Choice::Avoid;
        }
        Ok(is_there)
    }

    pub(super) async fn of_container(
        &self,
        client: &EngineClient,
        cluster: Option<&ClusterId>,
    ) -> Result<Option<JoinedNetwork>, RuntimeError> {
        let Some(cluster) = cluster else { return Ok(None) };
        let choice = *self.choice.lock();
        let is_there = match choice {
            Choice::Avoid => false,
            Choice::IfThere => self.look_up(client, cluster).await?,
            Choice::Join => ensure(client, cluster).await.map(|_| true)?,
        };
        Ok(is_there.then(|| JoinedNetwork {
            name: name(cluster),
            resolver: PoolAddress::RESOLVER.ip(),
            domain: "kubeleet",
            // Names with one dot, such as `0.web`, are ours first.
            resolver_options: vec!["ndots:2".to_owned()],
        }))
    }
}

fn name(cluster: &ClusterId) -> String {
    format!("kubeleet-{}", short(cluster))
}

fn interface(cluster: &ClusterId) -> String {
    // Interface names have at most 15 characters.
    format!("kl-{}", short(cluster))
}

fn short(cluster: &ClusterId) -> String {
    hex(&Sha256::digest(cluster.as_str())[..4])
}

async fn ensure(client: &EngineClient, cluster: &ClusterId) -> Result<Ipv4Addr, RuntimeError> {
    let name = name(cluster);
    if let Some(gateway) = gateway(client, &name).await? {
        return Ok(gateway);
    }
    let created = create(client, cluster).await;
    // Another worker may be creating it: the engine refuses ours before it lists theirs.
    for _ in 0..CREATED_ELSEWHERE_TRIES {
        if let Some(gateway) = gateway(client, &name).await? {
            return Ok(gateway);
        }
        tokio::time::sleep(CREATED_ELSEWHERE_INTERVAL).await;
    }
    created?;
    Err(RuntimeError::Failed(format!("network {name} was created and is not there")))
}

async fn create(client: &EngineClient, cluster: &ClusterId) -> Result<(), EngineFailure> {
    let option = |name: &str, value: &str| (format!("com.docker.network.bridge.{name}"), value.to_owned());
    let request = NetworkCreateRequest {
        name: name(cluster),
        driver: Some("bridge".to_owned()),
        options: Some(HashMap::from([option("name", &interface(cluster)), option("enable_icc", "false")])),
        labels: Some(HashMap::from([
            (label::ORCHESTRATOR.to_owned(), "kubeleet".to_owned()),
            (label::CLUSTER.to_owned(), cluster.to_string()),
        ])),
        ..Default::default()
    };
    let name = request.name.clone();
    let call = client.docker()?.create_network(request);
    let created = client.within(EngineCall::CreateNetwork, WRITE, call).await?;
    if !created.warning.is_empty() {
        // Podman does not know the option that isolates pods.
        tracing::info!(
            "The engine says of the network {name}: {}; the rules of the proxy keep pods apart there",
            created.warning
        );
    }
    Ok(())
}

async fn gateway(client: &EngineClient, name: &str) -> Result<Option<Ipv4Addr>, RuntimeError> {
    let call = client.docker()?.inspect_network(name, None);
    let network = match client.within(EngineCall::InspectNetwork, READ, call).await {
        Ok(network) => network,
        Err(failure) if failure.is_not_found() => return Ok(None),
        Err(failure) => return Err(failure.into()),
    };
    let ranges = network.ipam.and_then(|ipam| ipam.config).unwrap_or_default();
    let gateway = ranges.into_iter().find_map(|range| range.gateway?.parse().ok());
    let unknown =
        || RuntimeError::Failed(format!("network {name} has no gateway: remove it, it is made anew"));
    gateway.map(Some).ok_or_else(unknown)
}

pub(super) async fn remove(client: &EngineClient, cluster: &ClusterId) -> Result<(), RuntimeError> {
    let name = name(cluster);
    let call = client.docker()?.remove_network(&name);
    match client.within(EngineCall::RemoveNetwork, WRITE, call).await {
        Ok(()) => Ok(()),
        Err(failure) if failure.is_not_found() || failure.status == Some(403) => Ok(()),
        Err(failure) => Err(failure.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cluster_has_a_network_whose_interface_has_a_name_that_is_short_enough() {
        let cluster = |id: &str| ClusterId::new(id).unwrap();
        let long = cluster(&"c".repeat(64));
        assert!(interface(&long).len() <= 15 && interface(&long).starts_with("kl-"));
        assert_ne!(name(&long), name(&cluster("d")));
        assert_eq!(name(&cluster("d")), name(&cluster("d")));
    }
}
