//! Nodes: what a worker says of itself, and what the cluster knows of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::RedisMillis;
use crate::ids::{Incarnation, NodeName};

/// Amounts of what a node has and pods take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Resources {
    /// Thousandths of a core.
    pub cpu_millis: u64,
    /// Bytes.
    pub memory_bytes: u64,
    /// Number of pods.
    pub pods: u64,
}

/// Pressure stall information, `avg10`: the share of the last ten seconds, in percent, in which tasks waited.
/// See <https://docs.kernel.org/accounting/psi.html>.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Psi {
    /// Some task waited for a CPU.
    pub cpu_some: f32,
    /// Some task waited for memory.
    pub memory_some: f32,
    /// All tasks waited for memory.
    pub memory_full: f32,
    /// Some task waited for I/O.
    pub io_some: f32,
    /// All tasks waited for I/O.
    pub io_full: f32,
}

/// Whether the cluster counts on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Its heartbeat is fresh, or nobody has declared otherwise yet.
    Alive,
    /// Declared dead: its pods go, or have gone, back to the queue.
    Dead,
}

impl NodeState {
    /// The word in Redis and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            NodeState::Alive => "alive",
            NodeState::Dead => "dead",
        }
    }
}

/// What serves a node's queues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// Our own worker.
    #[default]
    Kubeleet,
    /// Another program that writes `hb:<worker>` and serves its queues. It can be neither fenced nor told to stop a pod.
    Guest,
}

/// What a worker tells about itself when it registers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// For `zone=a`-like selection.
    pub labels: BTreeMap<String, String>,
    /// What it can hold.
    pub capacity: Resources,
    /// `docker`, `process`, `sim`.
    pub runtime: String,
    /// The engine's own name and version.
    pub engine_version: String,
    /// kubeleet's version.
    pub version: String,
}

/// A node as Redis knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// Our worker or somebody else's.
    pub kind: NodeKind,
    /// Counted on or given up.
    pub state: NodeState,
    /// Which life of its worker; none for guests.
    pub incarnation: Option<Incarnation>,
    /// Its last heartbeat.
    pub beat: RedisMillis,
    /// When its worker last registered.
    pub registered_at: RedisMillis,
    /// A person asked that nothing new be placed here.
    pub cordoned: bool,
    /// What its engine last said when it was ill; none when it is well.
    pub engine_problem: Option<String>,
    /// What its worker told about itself.
    pub facts: NodeFacts,
    /// What is set aside for the pods it has.
    pub used: Resources,
    /// Its pressure at the last heartbeat; none where the kernel does not say.
    pub psi: Option<Psi>,
}
