//! The proxies of the other hosts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use daemon::state_file::StateFile;
use model::ids::NodeName;
use parking_lot::RwLock;

use super::key::Fingerprint;

/// In Redis as `<address>:<port> <fingerprint>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    pub address: SocketAddr,
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

#[derive(Debug, Default)]
pub struct Peers {
    by_node: RwLock<Arc<HashMap<NodeName, Peer>>>,
}

impl Peers {
    /// Saved by the previous process, for a restart without Redis.
    pub fn saved(path: &Path) -> Self {
        let lines: HashMap<NodeName, String> =
            StateFile::new(path).load_or_default("no other host is reached until Redis answers");
        let peers = lines.into_iter().filter_map(|(node, line)| Some((node, line.parse().ok()?)));
        Self { by_node: RwLock::new(Arc::new(peers.collect())) }
    }

    pub(super) fn text(&self) -> String {
        let all = self.all();
        let lines: BTreeMap<&NodeName, String> =
            all.iter().map(|(node, peer)| (node, peer.to_string())).collect();
        serde_json::to_string(&lines).expect("texts serialize")
    }

    pub fn set(&self, peers: HashMap<NodeName, Peer>) {
        *self.by_node.write() = Arc::new(peers);
    }

    #[cfg(any(test, feature = "fixtures"))]
    pub fn insert(&self, node: NodeName, peer: Peer) {
        let mut peers = HashMap::clone(&self.all());
        peers.insert(node, peer);
        self.set(peers);
    }

    pub fn of_node(&self, node: &NodeName) -> Option<Peer> {
        self.all().get(node).copied()
    }

    pub fn hosts(&self) -> Vec<(Peer, BTreeSet<NodeName>)> {
        let mut hosts: HashMap<Fingerprint, (Peer, BTreeSet<NodeName>)> = HashMap::new();
        for (node, peer) in self.all().iter() {
            let host = hosts.entry(peer.fingerprint).or_insert_with(|| (*peer, BTreeSet::new()));
            host.1.insert(node.clone());
        }
        hosts.into_values().collect()
    }

    pub(super) fn has(&self, peer: &Peer) -> bool {
        self.all().values().any(|other| other == peer)
    }

    pub(super) fn knows(&self, fingerprint: Fingerprint) -> bool {
        self.all().values().any(|peer| peer.fingerprint == fingerprint)
    }

    fn all(&self) -> Arc<HashMap<NodeName, Peer>> {
        self.by_node.read().clone()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn peers_are_read_as_they_were_saved_and_what_is_broken_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peers.json");
        let peers = Peers::saved(&path);
        assert!(peers.all().is_empty(), "there is no file yet");
        let (node, other) = (NodeName::new("w1").unwrap(), NodeName::new("w2").unwrap());
        let peer: Peer = format!("10.0.0.1:7079 {}", "a".repeat(64)).parse().unwrap();
        peers.set(HashMap::from([(node.clone(), peer), (other.clone(), peer)]));
        std::fs::write(&path, peers.text()).unwrap();
        assert_eq!(Peers::saved(&path).all(), peers.all());
        assert_eq!(Peers::saved(&path).hosts(), [(peer, BTreeSet::from([node, other]))]);
        std::fs::write(&path, r#"{"w1":"10.0.0.1:7079","w2":""}"#).unwrap();
        assert!(Peers::saved(&path).all().is_empty());
        std::fs::write(&path, "{").unwrap();
        assert!(Peers::saved(&path).all().is_empty());
    }
}
