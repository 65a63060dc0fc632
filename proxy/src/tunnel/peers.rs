//! The proxies of the other hosts: where each listens, and the key that it has.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};

use common::ids::NodeName;

use super::key::Fingerprint;

/// The proxy of a host, as it stands in Redis: `<address>:<port> <fingerprint>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Where it listens.
    pub address: SocketAddr,
    /// The fingerprint of its key.
    pub fingerprint: Fingerprint,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.address, self.fingerprint)
    }
}

impl FromStr for Peer {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (address, fingerprint) = text
            .split_once(' ')
            .ok_or_else(|| format!("{text:?} is not `<address>:<port> <fingerprint>`"))?;
        let address = address.parse().map_err(|_| format!("{address:?} is not an address with a port"))?;
        Ok(Self { address, fingerprint: fingerprint.parse()? })
    }
}

/// The proxies by the nodes whose pods they reach.
#[derive(Debug, Default)]
pub struct Peers {
    by_node: RwLock<Arc<HashMap<NodeName, Peer>>>,
}

impl Peers {
    /// Replaces all.
    pub fn set(&self, peers: HashMap<NodeName, Peer>) {
        *self.by_node.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(peers);
    }

    /// Inserts or changes one.
    #[cfg(test)]
    pub(crate) fn insert(&self, node: NodeName, peer: Peer) {
        let mut peers = HashMap::clone(&self.all());
        peers.insert(node, peer);
        self.set(peers);
    }

    /// Returns the proxy of a node.
    pub fn of_node(&self, node: &NodeName) -> Option<Peer> {
        self.all().get(node).copied()
    }

    /// Returns all, each with the nodes of its host.
    pub(crate) fn hosts(&self) -> Vec<(Peer, BTreeSet<NodeName>)> {
        let mut hosts: HashMap<Fingerprint, (Peer, BTreeSet<NodeName>)> = HashMap::new();
        for (node, peer) in self.all().iter() {
            let host = hosts.entry(peer.fingerprint).or_insert_with(|| (*peer, BTreeSet::new()));
            host.1.insert(node.clone());
        }
        hosts.into_values().collect()
    }

    /// Returns whether a proxy of this cluster has this key.
    pub(super) fn knows(&self, fingerprint: Fingerprint) -> bool {
        self.all().values().any(|peer| peer.fingerprint == fingerprint)
    }

    fn all(&self) -> Arc<HashMap<NodeName, Peer>> {
        self.by_node.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
