//! What the API says: one type per shape, used by the server to write and by the client to read.
//!
//! Field names are snake_case; times are RFC 3339 in UTC, from Redis' clock. Further fields may appear: readers ignore
//! what they do not know.

use std::collections::BTreeMap;

use common::RedisMillis;
use common::ids::{AssignmentId, NodeName, PodId, PodName, ServiceName};
use common::lifecycle::Phase;
use common::node::{NodeKind, NodeState, Psi, Resources};
use common::pod::Refusal;
use common::service::ServiceState;
use common::spec::{ContainerSpec, OnDisconnect, Seconds};
use common::store::QueueLengths;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A collection, or a page of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    /// What was found.
    pub items: Vec<T>,
    /// Where to go on: give it as `?after=`. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A service: what somebody wants, and how far the cluster is with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServiceView {
    /// Its name.
    #[schema(value_type = String, example = "web")]
    pub name: ServiceName,
    /// Wanted or going.
    pub state: ServiceState,
    /// Counts the changes of its pod specification, from 1. The ETag, too.
    pub generation: u64,
    /// How many pods there shall be.
    pub replicas: u32,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What a worker does with its pods when it can not reach Redis.
    pub on_disconnect: OnDisconnect,
    /// Time between SIGTERM and SIGKILL, seconds.
    #[schema(value_type = u64)]
    pub stop_grace_period: Seconds,
    /// The containers of each pod, environment values included: keep this answer to yourself.
    pub containers: Vec<ContainerSpec>,
    /// When it was first posted.
    pub created_at: String,
    /// When somebody last changed it.
    pub updated_at: String,
    /// How far the cluster is.
    pub status: ServiceStatus,
    /// In answers to writes: what is known of the write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<DurabilityView>,
}

/// How far the cluster is with a service. Counts of its pods by phase.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceStatus {
    /// How many pods there shall be; 0 while it is being deleted.
    pub desired: u64,
    /// Wait for a node.
    pub pending: u64,
    /// Are being started.
    pub assigned: u64,
    /// Run.
    pub running: u64,
    /// Are being stopped.
    pub stopping: u64,
    /// Ended well by themselves.
    pub succeeded: u64,
    /// Ended badly by themselves, or could never be started.
    pub failed: u64,
    /// Run, and are of the present generation.
    pub updated: u64,
    /// Of the pending ones, those that fit no node right now.
    pub unschedulable: u64,
    /// A sentence when something is not as it should be; empty when all is well.
    pub message: String,
}

/// Whether a write would survive the loss of Redis' master right now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DurabilityView {
    /// Who has it.
    pub state: DurabilityState,
    /// Replicas that have it.
    pub replicas: usize,
    /// Replicas that are known.
    pub known: usize,
    /// The same in a sentence.
    #[serde(default)]
    pub message: String,
}

/// Who has a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DurabilityState {
    /// Every known replica.
    Confirmed,
    /// The master; not all replicas said in time that they do.
    Unconfirmed,
    /// The master, and there are no replicas.
    SingleMachine,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PodView {
    /// Who it is.
    #[schema(value_type = String)]
    pub uuid: PodId,
    /// First part of its container's name.
    #[schema(value_type = String)]
    pub name: PodName,
    /// Where it is in its life.
    pub phase: Phase,
    /// One word on why it is as it is; empty when well.
    pub reason: String,
    /// The same in a sentence, with the engine's own words where there are some.
    pub message: String,
    /// The service it belongs to; none for a pod somebody pushed.
    #[schema(value_type = Option<String>)]
    pub service: Option<ServiceName>,
    /// Index among its service's pods.
    pub replica: u32,
    /// The generation of the service it was made from; 0 for a pushed pod.
    pub generation: u64,
    /// Its image.
    pub image: String,
    /// The node that has it; none while it waits.
    #[schema(value_type = Option<String>)]
    pub node: Option<NodeName>,
    /// Which giving to that node this is.
    #[schema(value_type = Option<String>)]
    pub assignment: Option<AssignmentId>,
    /// How often a node began to start it since it last ran.
    pub attempts: u32,
    /// How often its container was started again after it ended by itself.
    pub restarts: u32,
    /// How its container last ended, if it has.
    pub exit_code: Option<i64>,
    /// Container address; empty while none is known.
    pub address: String,
    /// CPU set aside for it, thousandths of a core.
    pub cpu_millis: u64,
    /// Memory set aside for it, bytes.
    pub memory_bytes: u64,
    /// When its record was made.
    pub created_at: String,
    /// When its phase last changed.
    pub since: String,
    /// Why it fits no node right now. Only when one pod is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<Refusal>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    /// Its name.
    #[schema(value_type = String, example = "worker1")]
    pub name: NodeName,
    /// Our worker or somebody else's.
    pub kind: NodeKind,
    /// Counted on or given up.
    pub state: NodeState,
    /// Alive, with a fresh heartbeat and a well engine. A cordoned node can be ready.
    pub ready: bool,
    /// A person asked that nothing new be placed here.
    pub cordoned: bool,
    /// Whether it stops its pods by itself when it is cut off. Guests do not.
    pub fenceable: bool,
    /// What its engine last said when it was ill.
    pub engine_problem: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// `docker`, `process`, `sim`; empty for guests.
    pub runtime: String,
    /// The engine's own name and version.
    pub engine_version: String,
    /// kubeleet's version.
    pub version: String,
    /// What it can hold.
    pub capacity: Resources,
    /// What is set aside for the pods it has.
    pub used: Resources,
    /// Its pressure at the last heartbeat; none where the kernel does not say.
    pub psi: Option<Psi>,
    /// Its last heartbeat.
    pub last_heartbeat: String,
    /// When its worker last registered.
    pub registered_at: String,
    /// Lengths of its queues.
    pub queues: NodeQueuesView,
}

/// Lengths of a node's queues and set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeQueuesView {
    /// `pq:<node>`.
    pub pending: u64,
    /// `rq:<node>`.
    pub starting: u64,
    /// `cs:<node>`.
    pub running: u64,
}

/// Lengths of all queues.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueuesView {
    /// `sq`: waiting for a scheduler.
    pub waiting: u64,
    /// In the schedulers' hands.
    pub in_flight: u64,
    /// Fit no node right now.
    pub unschedulable: u64,
    /// `dq`: dead letters.
    pub dead: u64,
    /// Each node's.
    pub nodes: Vec<QueuesOfNode>,
}

/// Lengths of one node's queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueuesOfNode {
    /// Which node.
    #[schema(value_type = String)]
    pub node: NodeName,
    /// `pq:<node>`.
    pub pending: u64,
    /// `rq:<node>`.
    pub starting: u64,
    /// `cs:<node>`.
    pub running: u64,
}

/// What stands in one queue, the next to be taken first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueView {
    /// Its key in Redis.
    #[schema(example = "pq:worker1")]
    pub queue: String,
    /// The first of its payloads. Of a set, some of them, in no order.
    pub items: Vec<QueueItem>,
}

/// A payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueItem {
    /// Byte for byte.
    pub payload: String,
    /// Present when the payload is not UTF-8: `base64`, which `payload` then is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
}

/// A dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LetterView {
    /// Stable as long as it lies there.
    pub id: String,
    /// The queue the payload came through.
    pub queue: String,
    /// Byte for byte.
    pub payload: String,
    /// Present when the payload is not UTF-8: `base64`, which `payload` then is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// Why it could not be a pod.
    pub reason: String,
    /// When it was rejected.
    pub at: String,
}

/// The cluster at a glance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatusView {
    /// Whether Redis answers. When it does not, the numbers below are zero because they are unknown.
    pub redis: RedisView,
    /// What is known of the latest write through this API process by now; none before the first, and when a newer write or
    /// a failover has overtaken it.
    pub durability: Option<DurabilityView>,
    /// Services with a write that the replicas have not confirmed yet; an event `WriteConfirmed` says when they have.
    #[serde(default)]
    pub unconfirmed_writes: u64,
    /// Nodes.
    pub nodes: NodeCounts,
    /// How many services there are.
    pub services: u64,
    /// How many pods are in each phase.
    #[schema(value_type = BTreeMap<String, u64>)]
    pub pods: BTreeMap<Phase, u64>,
    /// Totals of the queues that are not a node's.
    pub queues: QueueLengths,
    /// Schedulers that gave a sign of life lately.
    pub schedulers: u64,
    /// What a person should look at, a sentence each.
    pub problems: Vec<String>,
}

/// Redis, as this API process sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RedisView {
    /// Whether there is a master to talk to.
    pub connected: bool,
    /// Its address; empty while there is none.
    pub master: String,
    /// What is wrong; empty when nothing is.
    pub detail: String,
}

/// How many nodes there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeCounts {
    /// All that are known.
    pub total: u64,
    /// Alive, fresh heartbeat, engine well.
    pub ready: u64,
    /// Take nothing new.
    pub cordoned: u64,
    /// Declared dead.
    pub dead: u64,
}

/// What `/readyz` says when this process can serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReadyView {
    /// Always true here; otherwise the answer is a 503 problem.
    pub ready: bool,
    /// What does not keep the API from serving, and still is wrong.
    pub warnings: Vec<String>,
}

/// How many pods a service shall have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScaleInput {
    /// `replica` and `numInstances` are the same field.
    #[serde(alias = "replica", alias = "numInstances")]
    #[schema(example = 5)]
    pub replicas: u32,
}

/// What went wrong, as RFC 9457 has it. `docs/PROBLEMS.md` lists the types.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A stable name of the kind of problem, e.g. `/problems/service-not-found`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind of problem in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// This very problem in words, and what to do next.
    pub detail: String,
    /// The path that was asked for.
    #[serde(default)]
    pub instance: String,
    /// Finds the request in the log.
    #[serde(default)]
    pub request_id: String,
    /// Which fields are wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldProblem>,
}

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldProblem {
    /// JSON pointer to the field, `""` for the whole document.
    #[schema(example = "/containers/0/image")]
    pub pointer: String,
    /// What is wrong and what would be right.
    pub detail: String,
}

/// A time of Redis' clock as the API writes it: `2026-01-31T12:00:00.123Z`.
pub fn rfc3339(at: RedisMillis) -> String {
    let millis = i64::try_from(at).ok();
    let time = millis.and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
    // Only a record that somebody wrote by hand holds a time this far away.
    time.unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc3339() {
        assert_eq!(rfc3339(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(u64::MAX), "1970-01-01T00:00:00Z");
    }
}
