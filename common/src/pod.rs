//! The record of a pod: all about it that changes. Its payload does not.

use serde::{Deserialize, Serialize};

use crate::RedisMillis;
use crate::ids::{AssignmentId, NodeName, PodId, PodName, ServiceName, SpecId};
use crate::lifecycle::Phase;

/// `pod:<uuid>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRecord {
    /// Who it is.
    pub id: PodId,
    /// First part of its container's name.
    pub name: PodName,
    /// Where it is in its life.
    pub phase: Phase,
    /// Index among its service's pods.
    pub replica: u32,
    /// Its image, as the payload shows it.
    pub image: String,
    /// The service it belongs to; none for a pod somebody pushed.
    pub service: Option<ServiceName>,
    /// The specification it was made from; none for a pod somebody pushed.
    pub spec: Option<SpecId>,
    /// The generation of the service it was made from; 0 for a pushed pod.
    pub generation: u64,
    /// The node that has it; none while it waits.
    pub node: Option<NodeName>,
    /// Which giving to that node this is.
    pub assignment: Option<AssignmentId>,
    /// How often a node began to start it since it last ran.
    pub attempts: u32,
    /// How often its container was started again after it ended by itself.
    pub restarts: u32,
    /// CPU set aside for it on its node, thousandths of a core.
    pub cpu_millis: u64,
    /// Memory set aside for it on its node, bytes.
    pub memory_bytes: u64,
    /// When its record was made.
    pub created_at: RedisMillis,
    /// When its phase last changed.
    pub since: RedisMillis,
    /// One word on why it is as it is: `Unschedulable`, `ImagePullBackOff`, `CrashLoopBackOff` …; empty when well.
    pub reason: String,
    /// The same in a sentence, with the engine's own words where there are some.
    pub message: String,
    /// How its container last ended, if it has.
    pub exit_code: Option<i64>,
    /// Container address, as far as its node reported one.
    pub address: String,
}

/// Why a pod fits no node right now: each reason with how many nodes give it, and a few of their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Refusal {
    /// One word: `Cordoned`, `InsufficientMemory` …
    pub reason: String,
    /// How many nodes give this reason.
    pub count: usize,
    /// Some of them, at most [`Refusal::MAX_EXAMPLES`], each with its own sentence.
    pub nodes: Vec<NodeRefusal>,
}

impl Refusal {
    /// How many nodes are named for each reason. More would repeat the same sentence.
    pub const MAX_EXAMPLES: usize = 20;
}

/// One node's refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeRefusal {
    /// Which node.
    pub node: String,
    /// "needs 2 GiB, 1.2 GiB free".
    pub detail: String,
}
