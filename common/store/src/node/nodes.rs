//! Nodes: their records, heartbeats and queues.

use std::collections::BTreeMap;

use bytes::Bytes;
use redis::{Value, cmd};

use crate::broken_key::length_or_broken;
use crate::loaded::{Loaded, all_fields};
use crate::reply::{HashFields, corrupt, parse, sorted_names, unexpected, word};
use crate::scripts::{cordon, former_containers, node_remove};
use crate::{Store, StoreError, keys};
use model::RedisMillis;
use model::broken_key::BrokenKey;
use model::ids::{Incarnation, NodeName};
use model::node::drain::Drain;
use model::node::timing::Timing;
use model::node::{
    HeldPod, Node, NodeInfo, NodeKind, NodeSettings, NodeState, Nomination, Resources, SharedVolumesState,
    labels,
};

const QUEUES_PER_READ: usize = 500;
const PAYLOADS_PER_READ: usize = 250;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct NodeQueues {
    /// `pq`.
    pub pending: u64,
    /// `rq`.
    pub starting: u64,
    /// `cs`.
    pub running: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoveNodeOutcome {
    Removed,
    Missing,
    Alive,
    Draining,
}

impl Store {
    pub async fn redis_now(&self) -> Result<RedisMillis, StoreError> {
        let (seconds, micros): (u64, u64) = self.link.query(&cmd("TIME")).await?;
        Ok(seconds * 1000 + micros / 1000)
    }

    /// Returns them sorted, with dead ones.
    pub async fn node_names(&self) -> Result<Vec<NodeName>, StoreError> {
        Ok(sorted_names(self.members_or_records(keys::NODES, "node:").await?))
    }

    pub async fn node(&self, name: &NodeName) -> Result<Option<Node>, StoreError> {
        self.nodes(std::slice::from_ref(name)).await?.only()
    }

    pub async fn nodes(&self, names: &[NodeName]) -> Result<Loaded<Node>, StoreError> {
        self.load(names, |name| all_fields(keys::node(name)), read_node).await
    }

    /// Returns live nodes with a heartbeat at or after `since`. Pass the latest returned time next: a node
    /// may come twice, but none is missed.
    pub async fn beats_since(&self, since: RedisMillis) -> Result<Vec<(NodeName, RedisMillis)>, StoreError> {
        self.beats(since.to_string(), "+inf".to_owned()).await
    }

    pub async fn beats_before(
        &self,
        before: RedisMillis,
    ) -> Result<Vec<(NodeName, RedisMillis)>, StoreError> {
        self.beats("-inf".to_owned(), format!("({before}")).await
    }

    async fn beats(&self, from: String, to: String) -> Result<Vec<(NodeName, RedisMillis)>, StoreError> {
        let mut range = cmd("ZRANGEBYSCORE");
        range.arg(keys::BEATS).arg(from).arg(to).arg("WITHSCORES");
        let found: Vec<(Vec<u8>, f64)> = self.link.query(&range).await?;
        let read = |(name, at): (Vec<u8>, f64)| Some((parse(&name)?, at as u64));
        Ok(found.into_iter().filter_map(read).collect())
    }

    pub async fn live_nodes(&self) -> Result<usize, StoreError> {
        self.link.query(cmd("ZCARD").arg(keys::BEATS)).await
    }

    /// Returns false if the node does not exist.
    pub async fn cordon(&self, name: &NodeName, cordoned: bool) -> Result<bool, StoreError> {
        let cordon = cordon::Head { node_key: keys::node(name), node: name, cordoned };
        Ok(word("cordoning a node", self.link.script(&cordon.call()).await?)? == "OK")
    }

    pub async fn report_former_containers(
        &self,
        node: &NodeName,
        former: &NodeName,
        containers: usize,
    ) -> Result<bool, StoreError> {
        let call = former_containers::Head { node_key: keys::node(node), node, former, containers }.call();
        Ok(word("recording containers of a former name", self.link.script(&call).await?)? == "OK")
    }

    /// The node must be dead, with empty queues. With `is_former`, gives up the volumes of machines that had
    /// this name before: `Missing` if none could have any.
    pub async fn remove_node(
        &self,
        name: &NodeName,
        is_former: bool,
    ) -> Result<RemoveNodeOutcome, StoreError> {
        let what = "removing a node";
        let remove = node_remove::Head {
            node_key: keys::node(name),
            nodes: keys::NODES,
            beats: keys::BEATS,
            heartbeat_key: keys::hb(name),
            pq: keys::pq(name),
            rq: keys::rq(name),
            cs: keys::cs(name),
            stop_set: keys::stop(name),
            requests: keys::requests(name),
            reports: keys::VOLUME_REPORTS,
            proxies: keys::PROXIES,
            copies: keys::VOLUME_COPIES,
            reported: keys::reported_volumes(name),
            node: name,
            is_former,
        };
        match word(what, self.link.script(&remove.call()).await?)?.as_str() {
            "OK" => Ok(RemoveNodeOutcome::Removed),
            "MISSING" => Ok(RemoveNodeOutcome::Missing),
            "ALIVE" => Ok(RemoveNodeOutcome::Alive),
            "DRAINING" => Ok(RemoveNodeOutcome::Draining),
            other => Err(unexpected(what, other)),
        }
    }

    /// Also returns the unreadable queues, whose length is 0.
    ///
    /// # Errors
    /// Broken keys cause none.
    pub async fn node_queues(
        &self,
        names: &[NodeName],
    ) -> Result<(Vec<NodeQueues>, Vec<BrokenKey>), StoreError> {
        let (mut queues, mut broken) = (Vec::with_capacity(names.len()), Vec::new());
        for chunk in names.chunks(QUEUES_PER_READ) {
            let mut pipe = redis::pipe();
            for name in chunk {
                pipe.cmd("LLEN").arg(keys::pq(name));
                pipe.cmd("LLEN").arg(keys::rq(name));
                pipe.cmd("SCARD").arg(keys::cs(name));
            }
            let mut lengths = self.link.pipeline_each(pipe).await?.into_iter();
            for name in chunk {
                let mut length = |key| match lengths.next() {
                    Some(reply) => length_or_broken(reply, key, &mut broken),
                    None => Ok(0),
                };
                let (pending, starting) = (length(keys::pq(name))?, length(keys::rq(name))?);
                queues.push(NodeQueues { pending, starting, running: length(keys::cs(name))? });
            }
        }
        Ok((queues, broken))
    }

    /// Returns them sorted. Read in pages: not a snapshot.
    pub async fn container_set(&self, name: &NodeName) -> Result<Vec<Bytes>, StoreError> {
        let mut members = Vec::new();
        let mut cursor = 0u64;
        loop {
            let mut scan = cmd("SSCAN");
            scan.arg(keys::cs(name)).arg(cursor).arg("COUNT").arg(1000);
            let (next, page): (u64, Vec<Bytes>) = self.link.query(&scan).await?;
            members.extend(page);
            if next == 0 {
                break;
            }
            cursor = next;
        }
        members.sort_unstable();
        members.dedup();
        Ok(members)
    }

    /// Returns them sorted. Read in pages: not a snapshot. Pods acknowledged meanwhile are in the container
    /// set.
    pub async fn queued_on(&self, name: &NodeName) -> Result<Vec<Bytes>, StoreError> {
        let mut payloads = Vec::new();
        // In the order in which payloads move, and from the end where none is taken: none is skipped.
        for queue in [keys::pq(name), keys::rq(name)] {
            for first in (0..).step_by(PAYLOADS_PER_READ) {
                let mut range = cmd("LRANGE");
                range.arg(&queue).arg(first).arg(first + PAYLOADS_PER_READ - 1);
                let page: Vec<Bytes> = self.link.query(&range).await?;
                let is_last = page.len() < PAYLOADS_PER_READ;
                payloads.extend(page);
                if is_last {
                    break;
                }
            }
        }
        payloads.sort_unstable();
        payloads.dedup();
        Ok(payloads)
    }
}

/// By host port, or by id of a named resource.
fn read_holders(fields: &HashFields<'_>, prefix: &str) -> BTreeMap<String, String> {
    let holders = fields.with_prefix(prefix);
    let name = |holder: &str| holder.split_once(' ').map_or("a pod", |(_, name)| name).to_owned();
    holders.map(|(port, holder)| (port.to_owned(), name(&holder))).collect()
}

pub(crate) fn read_node(name: &NodeName, value: Value) -> Result<Option<Node>, StoreError> {
    let what = format!("reading node {name}");
    let Some(fields) = HashFields::read(&what, value)? else { return Ok(None) };
    // Written by hand; the node has not registered yet.
    let state = match fields.text("state").as_str() {
        "" => return Ok(None),
        "alive" => NodeState::Alive,
        "dead" => NodeState::Dead,
        other => return Err(corrupt(&what, format!("state is {other:?}"))),
    };
    let amount = |field: &str| fields.number::<i64>(field).map(|amount| amount.max(0) as u64);
    let kind = if fields.text("kind") == "guest" { NodeKind::External } else { NodeKind::Kubeleet };
    let incarnation: Option<Incarnation> = fields.parse_opt("incarnation")?;
    let timing = incarnation.as_ref().and_then(|session| Timing::from_stored(&fields.text("times"), session));
    let settings = fields.text("settings");
    let settings = incarnation.as_ref().and_then(|session| NodeSettings::from_stored(&settings, session));
    Ok(Some(Node {
        name: name.clone(),
        kind,
        state,
        incarnation,
        beat: fields.number("beat")?,
        timing,
        registered_at: fields.number("registered_at")?,
        created_at: fields.number("created_at")?,
        cordoned: fields.text("cordoned") == "1",
        drain: Drain::from_stored(&fields.text("drain")),
        engine_problem: fields.parse_opt("engine_problem")?,
        disk_problem: fields.parse_opt("disk_problem")?,
        problems: fields.text("problems").lines().map(str::to_owned).collect(),
        held_pods: fields.text("held_pods").lines().filter_map(HeldPod::from_line).collect(),
        facts: NodeInfo {
            labels: labels::effective(fields.json("labels")?, &fields.json("own_labels")?),
            capacity: Resources::from_amounts(amount("pods")?, |resource| amount(resource.field()))?,
            reserved: fields.json("reserved")?,
            runtime: fields.text("runtime"),
            engine_version: fields.text("engine_version"),
            engine_id: fields.text("engine_id"),
            version: fields.text("version"),
            settings,
        },
        shared_volumes: SharedVolumesState::from_text(fields.text("shared_volumes")),
        used: Resources::from_amounts(amount("used_pods")?, |resource| amount(&resource.used_field()))?,
        host_ports: read_holders(&fields, "port:"),
        given_ids: read_holders(&fields, "id:"),
        labels_revision: fields.number("labels_revision")?,
        nomination: Nomination::from_stored(&fields.text("nominated")),
        psi: fields.json("psi")?,
    }))
}
