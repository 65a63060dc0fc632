//! Nodes as the control plane sees them: reading them, declaring them dead, draining them, guests.

use std::time::Duration;

use bytes::Bytes;
use redis::{Value, cmd};

use super::reply::{Fields, list, read, unexpected, verdict, word};
use super::scripts::{self, call};
use super::{Store, StoreError, keys};
use crate::RedisMillis;
use crate::ids::{AssignmentId, Incarnation, NodeName, PodId};
use crate::node::{Node, NodeFacts, NodeKind, NodeState, Resources};
use crate::payload::Payload;
use crate::pod::PodRecord;

/// How many payloads one drain script moves.
const DRAIN_CHUNK: usize = 100;

/// What became of [`Store::declare_dead`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeclareOutcome {
    /// Dead from now on: drain it.
    Declared,
    /// It beat again, or is another life than the one that was seen.
    Alive,
    /// Somebody else was first.
    Already,
    /// Not yet: another node died just now, or the master changed.
    Wait(Duration),
}

/// What became of one [`Store::drain_step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainOutcome {
    /// So many payloads were looked at; there may be more.
    Moved(usize),
    /// Nothing is left on the node.
    Empty,
    /// The node lives again.
    Alive,
}

/// What [`Store::guest_beat`] saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestBeat {
    /// It is a worker of ours.
    Ours,
    /// Its value did not change.
    Silent,
    /// Its value changed: it lives.
    Beat,
    /// Its value changed for the first time, or again after it was dead: it is a node now.
    Joined,
    /// It was declared dead and its pods are still being moved.
    Draining,
}

/// Lengths of a node's queues and set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct NodeQueues {
    /// `pq`.
    pub pending: u64,
    /// `rq`.
    pub starting: u64,
    /// `cs`.
    pub running: u64,
}

impl Store {
    /// The time on Redis' clock.
    pub async fn redis_now(&self) -> Result<RedisMillis, StoreError> {
        let (seconds, micros): (u64, u64) = self.link.query(&cmd("TIME")).await?;
        Ok(seconds * 1000 + micros / 1000)
    }

    /// All nodes' names, dead ones included, sorted.
    pub async fn node_names(&self) -> Result<Vec<NodeName>, StoreError> {
        let names: Vec<String> = self.link.query(cmd("SMEMBERS").arg(keys::NODES)).await?;
        let mut names: Vec<_> = names.into_iter().filter_map(|name| NodeName::new(name).ok()).collect();
        names.sort();
        Ok(names)
    }

    /// One node.
    pub async fn node(&self, name: &NodeName) -> Result<Option<Node>, StoreError> {
        Ok(self.nodes(std::slice::from_ref(name)).await?.pop())
    }

    /// These nodes, in this order; those that do not exist are left out.
    pub async fn nodes(&self, names: &[NodeName]) -> Result<Vec<Node>, StoreError> {
        let mut nodes = Vec::with_capacity(names.len());
        for chunk in names.chunks(1000) {
            let mut pipe = redis::pipe();
            for name in chunk {
                pipe.cmd("HGETALL").arg(keys::node(name));
            }
            for reply in list("reading nodes", self.link.pipeline(&pipe).await?)? {
                nodes.extend(read_node(reply)?);
            }
        }
        Ok(nodes)
    }

    /// As [`Store::nodes`], but a node that can not be read is an error of its own and hides no other.
    pub async fn nodes_each(
        &self,
        names: &[NodeName],
    ) -> Result<(Vec<Node>, Vec<(NodeName, StoreError)>), StoreError> {
        match self.nodes(names).await {
            Ok(nodes) => return Ok((nodes, Vec::new())),
            Err(error) if error.is_transient() => return Err(error),
            Err(_) => {}
        }
        let (mut nodes, mut unreadable) = (Vec::new(), Vec::new());
        for name in names {
            match self.node(name).await {
                Ok(node) => nodes.extend(node),
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => unreadable.push((name.clone(), error)),
            }
        }
        Ok((nodes, unreadable))
    }

    /// Living nodes that beat at or after `since`, with the latest beat among them: the feed of an incremental
    /// snapshot. Ask next time with the beat that was given; a node may come twice, none is missed.
    pub async fn beats_since(&self, since: RedisMillis) -> Result<Vec<(NodeName, RedisMillis)>, StoreError> {
        let mut range = cmd("ZRANGEBYSCORE");
        range.arg(keys::BEATS).arg(since).arg("+inf").arg("WITHSCORES");
        let found: Vec<(String, f64)> = self.link.query(&range).await?;
        Ok(found.into_iter().filter_map(|(name, at)| Some((NodeName::new(name).ok()?, at as u64))).collect())
    }

    /// Nodes not declared dead whose last beat lies before `before`, with that beat.
    pub async fn beats_before(
        &self,
        before: RedisMillis,
    ) -> Result<Vec<(NodeName, RedisMillis)>, StoreError> {
        let mut range = cmd("ZRANGEBYSCORE");
        range.arg(keys::BEATS).arg("-inf").arg(format!("({before}")).arg("WITHSCORES");
        let found: Vec<(String, f64)> = self.link.query(&range).await?;
        Ok(found.into_iter().filter_map(|(name, at)| Some((NodeName::new(name).ok()?, at as u64))).collect())
    }

    /// How many nodes are not declared dead.
    pub async fn living_nodes(&self) -> Result<usize, StoreError> {
        self.link.query(cmd("ZCARD").arg(keys::BEATS)).await
    }

    /// Declares a node dead if it still is the same life and still silent for longer than `dead_after`.
    pub async fn declare_dead(
        &self,
        node: &Node,
        dead_after: Duration,
        pause_after_master_change: Duration,
        gap: Duration,
    ) -> Result<DeclareOutcome, StoreError> {
        let what = "declaring a node dead";
        let mut declare = call(&scripts::declare_dead);
        declare.key(keys::node(&node.name)).key(keys::BEATS).key(keys::stop(&node.name));
        declare.arg(node.name.as_str()).arg(incarnation_text(node)).arg(dead_after.as_millis() as u64);
        declare.arg(pause_after_master_change.as_millis() as u64).arg(gap.as_millis() as u64);
        let (answer, rest) = verdict(what, self.link.script(&declare).await?)?;
        match (answer.as_str(), rest.into_iter().next()) {
            ("DECLARED", _) => Ok(DeclareOutcome::Declared),
            ("ALIVE", _) => Ok(DeclareOutcome::Alive),
            ("ALREADY", _) => Ok(DeclareOutcome::Already),
            ("WAIT", Some(left)) => Ok(DeclareOutcome::Wait(Duration::from_millis(read(what, left)?))),
            (other, _) => Err(unexpected(what, other)),
        }
    }

    /// Moves up to a hundred payloads of a dead node back to `sq`. Any number of callers may do so at a time.
    pub async fn drain_step(&self, node: &Node) -> Result<DrainOutcome, StoreError> {
        for source in [Source::Starting, Source::Pending, Source::Running] {
            let found = self.drain_source(node, source).await?;
            if !found.is_empty() {
                return self.drain_chunk(node, source, &found).await;
            }
        }
        Ok(DrainOutcome::Empty)
    }

    async fn drain_source(&self, node: &Node, source: Source) -> Result<Vec<Bytes>, StoreError> {
        let mut peek = match source {
            Source::Running => cmd("SRANDMEMBER"),
            Source::Starting | Source::Pending => cmd("LRANGE"),
        };
        peek.arg(source.key(&node.name));
        match source {
            Source::Running => peek.arg(DRAIN_CHUNK),
            Source::Starting | Source::Pending => peek.arg(-(DRAIN_CHUNK as i64)).arg(-1),
        };
        let found: Vec<Vec<u8>> = self.link.query(&peek).await?;
        Ok(found.into_iter().map(Bytes::from).collect())
    }

    async fn drain_chunk(
        &self,
        node: &Node,
        source: Source,
        found: &[Bytes],
    ) -> Result<DrainOutcome, StoreError> {
        let what = "draining a node";
        let heads: Vec<Option<Payload>> = found.iter().map(|raw| Payload::parse(raw.clone()).ok()).collect();
        let ids: Vec<PodId> = heads.iter().flatten().map(|head| head.id.clone()).collect();
        // A record that somebody broke must not hold up the others: its payload goes to sq like an unreadable one.
        let mut records = self.pods_each(&ids).await?.into_iter();
        let mut drain = call(&scripts::drain);
        drain
            .key(keys::node(&node.name))
            .key(keys::SQ)
            .key(source.key(&node.name))
            .key(keys::stop(&node.name));
        drain.arg(node.name.as_str()).arg(incarnation_text(node)).arg(source.type_word());
        for (raw, head) in found.iter().zip(&heads) {
            drain.arg(&raw[..]);
            match head.as_ref().map(|head| (head, records.next())) {
                Some((head, Some(Ok(record)))) => {
                    let service = record.and_then(|record: PodRecord| record.service);
                    drain.key(keys::pod(&head.id)).key(keys::wanted(service.as_ref())).arg(head.id.as_str())
                }
                _ => drain.key("pod:").key(keys::PUSHED).arg(""),
            };
        }
        let (answer, _) = verdict(what, self.link.script(&drain).await?)?;
        match answer.as_str() {
            "OK" => Ok(DrainOutcome::Moved(found.len())),
            "ALIVE" => Ok(DrainOutcome::Alive),
            other => Err(unexpected(what, other)),
        }
    }

    /// Says whether new pods may be placed on a node; false when there is no such node.
    pub async fn cordon(&self, name: &NodeName, cordoned: bool) -> Result<bool, StoreError> {
        let mut cordon = call(&scripts::cordon);
        cordon.key(keys::node(name)).arg(name.as_str()).arg(u8::from(cordoned));
        Ok(word("cordoning a node", self.link.script(&cordon).await?)? == "OK")
    }

    /// How much stands in these nodes' queues.
    pub async fn node_queues(&self, names: &[NodeName]) -> Result<Vec<NodeQueues>, StoreError> {
        let mut queues = Vec::with_capacity(names.len());
        for chunk in names.chunks(500) {
            let mut pipe = redis::pipe();
            for name in chunk {
                pipe.cmd("LLEN").arg(keys::pq(name));
                pipe.cmd("LLEN").arg(keys::rq(name));
                pipe.cmd("SCARD").arg(keys::cs(name));
            }
            let lengths: Vec<u64> = self.link.pipeline(&pipe).await?;
            let triples = lengths.chunks_exact(3);
            queues.extend(triples.map(|t| NodeQueues { pending: t[0], starting: t[1], running: t[2] }));
        }
        Ok(queues)
    }

    /// One page of a slow walk over the key space for nodes that only their keys tell of: names seen in `hb:*` and
    /// `pq:*`, and where to go on (0 at the end).
    pub async fn scan_for_guests(
        &self,
        cursor: u64,
        count: usize,
    ) -> Result<(u64, Vec<GuestSign>), StoreError> {
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg("[hp][bq]:*").arg("COUNT").arg(count);
        let (next, found): (u64, Vec<Vec<u8>>) = self.link.query(&scan).await?;
        let sign = |key: Vec<u8>| {
            let key = String::from_utf8(key).ok()?;
            let (prefix, name) = key.split_once(':')?;
            let name = NodeName::new(name).ok()?;
            match prefix {
                "hb" => Some(GuestSign::Heartbeat(name)),
                "pq" => Some(GuestSign::Queue(name)),
                _ => None,
            }
        };
        Ok((next, found.into_iter().filter_map(sign).collect()))
    }

    /// Looks at the heartbeat key of a worker that may not be ours.
    pub async fn guest_beat(&self, name: &NodeName, max_pods: u64) -> Result<GuestBeat, StoreError> {
        let what = "reading a guest's heartbeat";
        let mut beat = call(&scripts::guest_beat);
        beat.key(keys::node(name)).key(keys::NODES).key(keys::BEATS).key(keys::hb(name));
        beat.key(keys::pq(name)).key(keys::rq(name)).key(keys::cs(name));
        beat.arg(name.as_str()).arg(Incarnation::random().as_str()).arg(max_pods);
        match word(what, self.link.script(&beat).await?)?.as_str() {
            "OURS" => Ok(GuestBeat::Ours),
            "SILENT" => Ok(GuestBeat::Silent),
            "BEAT" => Ok(GuestBeat::Beat),
            "JOINED" => Ok(GuestBeat::Joined),
            "DRAINING" => Ok(GuestBeat::Draining),
            other => Err(unexpected(what, other)),
        }
    }

    /// Believes what stands in a guest's container set; gives how many pods are new to us as running.
    pub async fn guest_ack(&self, name: &NodeName, running: &[Payload]) -> Result<usize, StoreError> {
        let mut found = 0;
        for chunk in running.chunks(DRAIN_CHUNK) {
            let mut ack = call(&scripts::guest_ack);
            ack.key(keys::node(name)).key(keys::cs(name)).key(keys::PUSHED).arg(name.as_str());
            for payload in chunk {
                ack.key(keys::pod(&payload.id)).arg(&payload.raw[..]).arg(payload.id.as_str());
                ack.arg(AssignmentId::random().as_str()).arg(payload.name.as_str());
                ack.arg(&payload.image).arg(payload.replica);
            }
            found += read::<usize>("reading a guest's pods", self.link.script(&ack).await?)?;
        }
        Ok(found)
    }

    /// The payloads in a node's container set.
    pub async fn container_set(&self, name: &NodeName) -> Result<Vec<Bytes>, StoreError> {
        let mut members = Vec::new();
        let mut cursor = 0u64;
        loop {
            let mut scan = cmd("SSCAN");
            scan.arg(keys::cs(name)).arg(cursor).arg("COUNT").arg(1000);
            let (next, page): (u64, Vec<Vec<u8>>) = self.link.query(&scan).await?;
            members.extend(page.into_iter().map(Bytes::from));
            if next == 0 {
                break;
            }
            cursor = next;
        }
        members.sort_unstable();
        members.dedup();
        Ok(members)
    }
}

/// A sign of a node that may not have registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestSign {
    /// Something writes its heartbeat.
    Heartbeat(NodeName),
    /// Something stands in its queue.
    Queue(NodeName),
}

#[derive(Debug, Clone, Copy)]
enum Source {
    Running,
    Starting,
    Pending,
}

impl Source {
    fn key(self, node: &NodeName) -> String {
        match self {
            Source::Running => keys::cs(node),
            Source::Starting => keys::rq(node),
            Source::Pending => keys::pq(node),
        }
    }

    fn type_word(self) -> &'static str {
        match self {
            Source::Running => "set",
            Source::Starting | Source::Pending => "list",
        }
    }
}

fn incarnation_text(node: &Node) -> &str {
    node.incarnation.as_ref().map(Incarnation::as_str).unwrap_or_default()
}

fn read_node(value: Value) -> Result<Option<Node>, StoreError> {
    let Some(fields) = Fields::read("reading a node", value)? else { return Ok(None) };
    // A beat that a hand wrote before anybody registered is no node yet.
    if fields.text("state").is_empty() {
        return Ok(None);
    }
    let problem = fields.text("engine_problem");
    let count = |field| fields.number::<i64>(field).map(|n| n.max(0) as u64);
    Ok(Some(Node {
        name: fields.parse("name")?,
        kind: if fields.text("kind") == "guest" { NodeKind::Guest } else { NodeKind::Kubeleet },
        state: if fields.text("state") == "dead" { NodeState::Dead } else { NodeState::Alive },
        incarnation: fields.parse_opt("incarnation")?,
        beat: fields.number("beat")?,
        registered_at: fields.number("registered_at")?,
        cordoned: fields.text("cordoned") == "1",
        engine_problem: (!problem.is_empty()).then_some(problem),
        facts: NodeFacts {
            labels: fields.json("labels")?,
            capacity: Resources {
                cpu_millis: count("cpu")?,
                memory_bytes: count("memory")?,
                pods: count("pods")?,
            },
            runtime: fields.text("runtime"),
            engine_version: fields.text("engine_version"),
            version: fields.text("version"),
        },
        used: Resources {
            cpu_millis: count("used_cpu")?,
            memory_bytes: count("used_memory")?,
            pods: count("used_pods")?,
        },
        psi: fields.json("psi")?,
    }))
}
