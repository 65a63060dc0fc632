//! Workers on hold: they leave their containers alone, because this Redis does not know their cluster or most
//! of their pods.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::cmd;

use crate::reply::parse;
use crate::{Store, StoreError, keys};
use model::RedisMillis;
use model::ids::{ClusterId, NodeName};
use model::node::Node;

/// Workers on hold report every second.
const FRESH: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldNode {
    pub node: NodeName,
    pub cluster: ClusterId,
    pub containers: u64,
    pub reason: HoldReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldReason {
    Cluster,
    Records,
}

impl Store {
    pub async fn cluster_id(&self) -> Result<Option<ClusterId>, StoreError> {
        let id: Option<Vec<u8>> = self.link.query(cmd("HGET").arg(keys::META).arg("cluster")).await?;
        Ok(id.and_then(|id| parse(&id)))
    }

    pub async fn held_nodes(&self) -> Result<Vec<HeldNode>, StoreError> {
        let fields: BTreeMap<Vec<u8>, Vec<u8>> = match self.link.query(cmd("HGETALL").arg(keys::HELD)).await {
            // Workers do not write to a key of another type either.
            Err(StoreError::WrongType { .. }) => return Ok(Vec::new()),
            read => read?,
        };
        if fields.is_empty() {
            return Ok(Vec::new());
        }
        let since = self.redis_now().await?.saturating_sub(FRESH.as_millis() as RedisMillis);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).ok();
        let entries = fields.into_iter().filter_map(|(node, entry)| Some((text(node)?, text(entry)?)));
        Ok(entries.filter_map(|(node, entry)| read_entry(node, &entry, since)).collect())
    }
}

impl Store {
    /// Returns nodes that hold for lack of records.
    pub async fn holding_nodes(&self) -> Result<Vec<Node>, StoreError> {
        let held = self.held_nodes().await?;
        let of_records = held.into_iter().filter(|held| held.reason == HoldReason::Records);
        let names: Vec<NodeName> = of_records.map(|held| held.node).collect();
        Ok(self.nodes(&names).await?.found())
    }
}

/// Reads `<cluster> <containers> <time>[ records]`.
fn read_entry(node: String, entry: &str, since: RedisMillis) -> Option<HeldNode> {
    let mut words = entry.split(' ');
    let (cluster, containers, at) = (words.next()?, words.next()?, words.next()?);
    let is_fresh = at.parse::<RedisMillis>().ok()? >= since;
    let held = HeldNode {
        node: NodeName::new(node).ok()?,
        cluster: ClusterId::new(cluster).ok()?,
        containers: containers.parse().ok()?,
        reason: if words.next() == Some("records") { HoldReason::Records } else { HoldReason::Cluster },
    };
    is_fresh.then_some(held)
}
