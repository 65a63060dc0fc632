//! Declares silent nodes dead, and returns their payloads to the queue.

use std::cmp::Reverse;
use std::time::Duration;

use bytes::Bytes;
use redis::cmd;

use crate::reply::{read, unexpected, verdict};
use crate::scripts::{declare_dead, drain};
use crate::{Store, StoreError, keys};
use model::RedisMillis;
use model::ids::{NodeName, PodId};
use model::node::Node;
use model::pod::payload::Payload;

const DRAIN_CHUNK: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeclareOutcome {
    Declared,
    Alive,
    Already,
    /// Another node was declared dead just now, or the master changed.
    Wait(Duration),
}

/// Time for which the caller would have noticed a live worker: longer silence does not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SilenceProof {
    /// Its last write, on Redis' clock.
    pub until: RedisMillis,
    /// How long it had been able to write then.
    pub writable: Duration,
    /// Time since the last mass loss then.
    pub calm: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainOutcome {
    Moved(usize),
    Empty,
    Alive,
}

impl Store {
    /// The node must have been silent, as far as `proof` covers, for longer than `dead_after` and its
    /// worker's registered time. Between two declarations `gap` must pass.
    pub async fn declare_dead(
        &self,
        node: &Node,
        dead_after: Duration,
        pause_after_master_change: Duration,
        gap: Duration,
        proof: SilenceProof,
    ) -> Result<DeclareOutcome, StoreError> {
        let what = "declaring a node dead";
        let declare = declare_dead::Head {
            node_key: keys::node(&node.name),
            beats: keys::BEATS,
            stop_set: keys::stop(&node.name),
            node: &node.name,
            seen_incarnation: node.incarnation.as_ref(),
            dead_after_ms: dead_after,
            pause_ms: pause_after_master_change,
            min_gap_ms: gap,
            proven_until: proof.until,
            writable_ms: proof.writable,
            calm_ms: proof.calm,
        };
        let (answer, rest) = verdict(what, self.link.script(&declare.call()).await?)?;
        match (answer.as_str(), rest.into_iter().next()) {
            ("DECLARED", _) => Ok(DeclareOutcome::Declared),
            ("ALIVE", _) => Ok(DeclareOutcome::Alive),
            ("ALREADY", _) => Ok(DeclareOutcome::Already),
            ("WAIT", Some(left)) => Ok(DeclareOutcome::Wait(Duration::from_millis(read(what, left)?))),
            (other, _) => Err(unexpected(what, other)),
        }
    }

    /// Moves the payloads of one queue of the node before those that wait, ordered by service and replica.
    /// Callable concurrently.
    pub async fn drain_step(&self, node: &Node) -> Result<DrainOutcome, StoreError> {
        let mut broken = None;
        for source in [SourceQueue::Starting, SourceQueue::Pending, SourceQueue::Running] {
            let found = match self.payloads_to_drain(node, source).await {
                Err(error) if !error.is_transient() => {
                    broken = Some(error);
                    continue;
                }
                found => found?,
            };
            if found.is_empty() {
                continue;
            }
            for chunk in found.chunks(DRAIN_CHUNK) {
                let outcome = match self.drain_chunk(node, source, chunk, true).await {
                    Err(error) if !error.is_transient() => self.drain_each(node, source, chunk).await,
                    outcome => outcome,
                };
                if outcome? == DrainOutcome::Alive {
                    return Ok(DrainOutcome::Alive);
                }
            }
            return Ok(DrainOutcome::Moved(found.len()));
        }
        broken.map_or(Ok(DrainOutcome::Empty), Err)
    }

    /// Drains one by one, because a payload has a broken key: that one goes to `sq` unchanged.
    async fn drain_each(
        &self,
        node: &Node,
        source: SourceQueue,
        found: &[Bytes],
    ) -> Result<DrainOutcome, StoreError> {
        for payload in found {
            let one = std::slice::from_ref(payload);
            let outcome = match self.drain_chunk(node, source, one, true).await {
                Err(error) if !error.is_transient() => self.drain_chunk(node, source, one, false).await?,
                outcome => outcome?,
            };
            if outcome == DrainOutcome::Alive {
                return Ok(outcome);
            }
        }
        Ok(DrainOutcome::Moved(found.len()))
    }

    /// All of them, each before those that go on earlier: the last one is the first that a scheduler takes.
    async fn payloads_to_drain(&self, node: &Node, source: SourceQueue) -> Result<Vec<Bytes>, StoreError> {
        let mut found = match source {
            SourceQueue::Running => self.container_set(&node.name).await?,
            SourceQueue::Starting | SourceQueue::Pending => {
                self.link.query(cmd("LRANGE").arg(source.key(&node.name)).arg(0).arg(-1)).await?
            }
        };
        found.sort_by_cached_key(|raw| {
            Reverse(Payload::parse(raw.clone()).ok().map(|payload| payload.queue_order()))
        });
        Ok(found)
    }

    /// Without `with_records` the payloads move to `sq`, and their records stay as they are.
    async fn drain_chunk(
        &self,
        node: &Node,
        source: SourceQueue,
        found: &[Bytes],
        with_records: bool,
    ) -> Result<DrainOutcome, StoreError> {
        let what = "draining a node";
        let parse = |raw: &Bytes| Payload::parse(raw.clone()).ok().filter(|_| with_records);
        let parsed: Vec<Option<Payload>> = found.iter().map(parse).collect();
        let ids: Vec<PodId> = parsed.iter().flatten().map(|payload| payload.id.clone()).collect();
        // With a broken record the payload goes to sq like an unreadable one.
        let mut records = self.pods(&ids).await?.into_iter();
        let mut call = drain::Head {
            node_key: keys::node(&node.name),
            sq: keys::SQ,
            source: source.key(&node.name),
            stop_set: keys::stop(&node.name),
            node: &node.name,
            seen_incarnation: node.incarnation.as_ref(),
            source_type: source.type_name(),
        }
        .call();
        for (payload, parsed) in found.iter().zip(&parsed) {
            let known = parsed.as_ref().and_then(|parsed| Some((&parsed.id, records.next()?.ok()?)));
            let service = known.as_ref().and_then(|(_, record)| record.as_ref()?.service.as_ref());
            let id = known.as_ref().map(|(id, _)| *id);
            call.add(drain::Pod {
                pod_key: id.map_or_else(|| "pod:".to_owned(), keys::pod),
                wanted_key: keys::wanted(service),
                ep_key: keys::endpoints_of(service),
                payload,
                uuid: id,
            });
        }
        let (answer, _) = verdict(what, self.link.script(&call).await?)?;
        match answer.as_str() {
            "OK" => Ok(DrainOutcome::Moved(found.len())),
            "ALIVE" => Ok(DrainOutcome::Alive),
            other => Err(unexpected(what, other)),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum SourceQueue {
    Running,
    Starting,
    Pending,
}

impl SourceQueue {
    fn key(self, node: &NodeName) -> String {
        match self {
            SourceQueue::Running => keys::cs(node),
            SourceQueue::Starting => keys::rq(node),
            SourceQueue::Pending => keys::pq(node),
        }
    }

    fn type_name(self) -> &'static str {
        match self {
            SourceQueue::Running => "set",
            SourceQueue::Starting | SourceQueue::Pending => "list",
        }
    }
}
