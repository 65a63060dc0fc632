//! What a scheduler does with the queue: take, assign, park, and return what a dead scheduler held.

use std::time::Duration;

use bytes::Bytes;
use redis::{Value, cmd};

use super::link::Dedicated;
use super::reply::{list, payloads, read, unexpected, verdict, word};
use super::scripts::{self, Call, call};
use super::{Store, StoreError, keys};
use crate::RedisMillis;
use crate::ids::{AssignmentId, Incarnation, NodeName, SchedulerId};
use crate::node::Resources;
use crate::payload::Payload;
use crate::pod::Refusal;

/// One script takes so many: a few milliseconds of Redis.
pub const TAKEN_AT_ONCE: usize = 4096;

/// A scheduler's decision, to be carried out.
#[derive(Debug, Clone)]
pub struct Assignment {
    /// The pod, as it came through the queue.
    pub payload: Payload,
    /// Where it shall run.
    pub node: NodeName,
    /// The life of that node's worker that the decision was made for.
    pub incarnation: Option<Incarnation>,
    /// What to set aside.
    pub request: Resources,
}

/// What became of one [`Assignment`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssignOutcome {
    /// Done.
    Assigned,
    /// Nobody waits for this pod any more: the payload was dropped.
    Stale,
    /// The payload is not in this scheduler's hands any more.
    Gone,
    /// Its service does not know it: still in hand; reject it.
    Orphan,
    /// The node refuses: still in hand; decide again with a fresh view of the node.
    Refused,
}

/// A pod that fits nowhere, to be recorded.
#[derive(Debug, Clone)]
pub struct Parked {
    /// The pod, as it came through the queue.
    pub payload: Payload,
    /// What it asks for.
    pub request: Resources,
    /// Why no node takes it.
    pub refusals: Vec<Refusal>,
    /// The same in a sentence.
    pub message: String,
}

/// What became of one [`Parked`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParkOutcome {
    /// Recorded; it will be tried again.
    Parked,
    /// Nobody waits for this pod any more: the payload was dropped.
    Stale,
    /// The payload is not in this scheduler's hands any more.
    Gone,
    /// Its service does not know it: still in hand; reject it.
    Orphan,
}

/// Which unschedulable pods to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unpark {
    /// Those whose wait is over.
    Due,
    /// Any, because room appeared.
    All,
}

/// The blocking end of `sq`: one connection, one loop.
pub struct SchedulerQueue {
    connection: Dedicated,
    block: Duration,
    id: SchedulerId,
}

impl SchedulerQueue {
    /// Waits for a pod, for at most one block period, and does what [`Store::take`] does in the same breath: takes more, up
    /// to `max`, shows that the scheduler lives, and gives all it has in hand, oldest first. Of very many only a part.
    /// After an error or a dropped call make a new queue: the connection may hold a late reply.
    pub async fn next(&mut self, max: usize) -> Result<Vec<Bytes>, StoreError> {
        let mut pop = cmd("BRPOPLPUSH");
        pop.arg(keys::SQ).arg(keys::in_flight(&self.id)).arg(self.block.as_secs_f64());
        let take = take_call(&self.id, max.min(TAKEN_AT_ONCE), 0);
        let (_popped, in_hand): (Value, Value) = self.connection.query_then(&pop, &take).await?;
        read_taken(in_hand)
    }
}

impl Store {
    /// Opens the blocking end of `sq`; `block` of 2 to 5 s.
    pub async fn scheduler_queue(
        &self,
        id: &SchedulerId,
        block: Duration,
    ) -> Result<SchedulerQueue, StoreError> {
        let connection = self.link.dedicated(block + Duration::from_secs(5)).await?;
        Ok(SchedulerQueue { connection, block, id: id.clone() })
    }

    /// Takes up to `max` pods in hand, shows that the scheduler lives, and gives all it has in hand, oldest first.
    pub async fn take(&self, id: &SchedulerId, max: usize) -> Result<Vec<Bytes>, StoreError> {
        let mut in_hand: Vec<Bytes> = Vec::new();
        loop {
            let known = in_hand.len();
            let until = max.min(known + TAKEN_AT_ONCE);
            in_hand.extend(read_taken(self.link.script(&take_call(id, until, known)).await?)?);
            if in_hand.len() < until || until == max {
                return Ok(in_hand);
            }
        }
    }

    /// Carries decisions out: node check, resources, record and queue in one step. One outcome each. All assignments to
    /// one node must be for the same incarnation; cheapest for the oldest in hand, in their order.
    pub async fn assign(
        &self,
        id: &SchedulerId,
        dead_after: Duration,
        assignments: &[Assignment],
    ) -> Result<Vec<AssignOutcome>, StoreError> {
        self.assign_as_seen(id, dead_after, assignments, &|_| None).await
    }

    /// The same; a node that has more pods by now than `seen` says refuses. So several schedulers that look at the same
    /// few idle nodes do not all choose the same one.
    pub async fn assign_as_seen(
        &self,
        id: &SchedulerId,
        dead_after: Duration,
        assignments: &[Assignment],
        seen: &(dyn Fn(&NodeName) -> Option<u64> + Sync),
    ) -> Result<Vec<AssignOutcome>, StoreError> {
        let what = "assigning pods";
        let mut nodes: Vec<&Assignment> = Vec::new();
        let mut index = std::collections::HashMap::new();
        for assignment in assignments {
            index.entry(&assignment.node).or_insert_with(|| {
                nodes.push(assignment);
                nodes.len()
            });
        }
        let mut assign = call(&scripts::assign);
        assign.key(keys::in_flight(id)).key(keys::PUSHED).arg(nodes.len()).arg(dead_after.as_millis() as u64);
        for Assignment { node, incarnation, .. } in nodes {
            assign.key(keys::node(node)).key(keys::pq(node)).arg(node.as_str());
            assign.arg(incarnation.as_ref().map(Incarnation::as_str).unwrap_or_default());
            assign.arg(seen(node).map(|pods| pods.to_string()).unwrap_or_default());
        }
        for Assignment { payload, node, request, .. } in assignments {
            assign
                .key(keys::pod(&payload.id))
                .arg(payload.id.as_str())
                .arg(&payload.raw[..])
                .arg(index[node]);
            assign.arg(AssignmentId::random().as_str()).arg(request.cpu_millis).arg(request.memory_bytes);
            assign.arg(payload.name.as_str()).arg(&payload.image).arg(payload.replica);
            assign.arg(u8::from(payload.spec.is_some()));
        }
        let replies = list(what, self.link.script(&assign).await?)?;
        let outcome = |value| match word(what, value)?.as_str() {
            "ok" => Ok(AssignOutcome::Assigned),
            "stale" => Ok(AssignOutcome::Stale),
            "gone" => Ok(AssignOutcome::Gone),
            "orphan" => Ok(AssignOutcome::Orphan),
            "not_ready" | "cordoned" | "engine" | "full" | "crowded" => Ok(AssignOutcome::Refused),
            other => Err(unexpected(what, other)),
        };
        replies.into_iter().map(outcome).collect()
    }

    /// Records pods that fit nowhere, out of the scheduler's hands. One outcome each.
    pub async fn park(&self, id: &SchedulerId, parked: &[Parked]) -> Result<Vec<ParkOutcome>, StoreError> {
        let what = "recording unschedulable pods";
        let mut park = call(&scripts::park);
        park.key(keys::in_flight(id)).key(keys::UQ).key(keys::UQ_AT).key(keys::UQ_WHY).key(keys::PUSHED);
        for Parked { payload, request, refusals, message } in parked {
            park.key(keys::pod(&payload.id)).arg(payload.id.as_str()).arg(&payload.raw[..]);
            park.arg(super::services::to_json(refusals)).arg(message).arg(payload.name.as_str());
            park.arg(&payload.image).arg(payload.replica).arg(request.cpu_millis).arg(request.memory_bytes);
            park.arg(u8::from(payload.spec.is_some()));
        }
        let replies = list(what, self.link.script(&park).await?)?;
        let outcome = |value| match word(what, value)?.as_str() {
            "ok" => Ok(ParkOutcome::Parked),
            "stale" => Ok(ParkOutcome::Stale),
            "gone" => Ok(ParkOutcome::Gone),
            "orphan" => Ok(ParkOutcome::Orphan),
            other => Err(unexpected(what, other)),
        };
        replies.into_iter().map(outcome).collect()
    }

    /// Puts up to `max` unschedulable pods back into the queue; gives how many.
    pub async fn unpark(&self, which: Unpark, max: usize) -> Result<usize, StoreError> {
        let mut unpark = call(&scripts::unpark);
        unpark.key(keys::SQ).key(keys::UQ).key(keys::UQ_AT).key(keys::UQ_WHY);
        unpark.arg(if which == Unpark::All { "all" } else { "due" }).arg(max);
        read("requeueing unschedulable pods", self.link.script(&unpark).await?)
    }

    /// Every scheduler that was ever seen and is not forgotten, with its last sign of life.
    pub async fn schedulers(&self) -> Result<Vec<(SchedulerId, RedisMillis)>, StoreError> {
        let mut range = cmd("ZRANGE");
        range.arg(keys::SCHEDULERS).arg(0).arg(-1).arg("WITHSCORES");
        let found: Vec<(String, f64)> = self.link.query(&range).await?;
        Ok(found.into_iter().filter_map(|(id, at)| Some((SchedulerId::new(id).ok()?, at as u64))).collect())
    }

    /// Returns up to `max` pods in the hands of a scheduler that was silent for `silent`; none when it lives.
    pub async fn return_orphans(
        &self,
        id: &SchedulerId,
        silent: Duration,
        max: usize,
    ) -> Result<Option<usize>, StoreError> {
        let what = "returning orphans";
        let mut orphans = call(&scripts::return_orphans);
        orphans.key(keys::SQ).key(keys::in_flight(id)).key(keys::SCHEDULERS);
        orphans.arg(id.as_str()).arg(silent.as_millis() as u64).arg(max);
        let (answer, rest) = verdict(what, self.link.script(&orphans).await?)?;
        match (answer.as_str(), rest.into_iter().next()) {
            ("ALIVE", _) => Ok(None),
            ("OK", Some(count)) => Ok(Some(read(what, count)?)),
            (other, _) => Err(unexpected(what, other)),
        }
    }

    /// Takes or keeps the right to run a loop that one process is enough for. Saves work; proves nothing.
    pub async fn lease(
        &self,
        name: &str,
        holder: &SchedulerId,
        period: Duration,
    ) -> Result<bool, StoreError> {
        let mut lease = call(&scripts::lease);
        lease.key(keys::lease(name)).arg(holder.as_str()).arg(period.as_millis() as u64);
        Ok(read::<u8>("taking a lease", self.link.script(&lease).await?)? == 1)
    }
}

/// Up to `until` pods in hand, of which so many, the oldest, are known.
fn take_call(id: &SchedulerId, until: usize, known: usize) -> Call<'static> {
    let mut take = call(&scripts::take);
    take.key(keys::SQ).key(keys::in_flight(id)).key(keys::SCHEDULERS);
    take.arg(id.as_str()).arg(until).arg(known);
    take
}

/// What a [`take_call`] gives, oldest first.
fn read_taken(reply: Value) -> Result<Vec<Bytes>, StoreError> {
    let mut taken = payloads("taking pods", reply)?;
    taken.reverse();
    Ok(taken)
}
