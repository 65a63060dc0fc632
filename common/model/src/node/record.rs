//! Nodes: what a worker reports about itself, and what the cluster records about it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::RedisMillis;
use crate::ids::{Incarnation, NodeName, PodId, ServiceName};
use crate::node::host_access::HostAccess;
use crate::node::resources::Resources;
use crate::node::timing::Timing;

/// Pressure stall information (`avg10`): the percentage of the last ten seconds in which tasks waited.
/// See <https://docs.kernel.org/accounting/psi.html>.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Psi {
    /// At least one task waited for a CPU.
    pub cpu_some: f32,
    /// At least one task waited for memory.
    pub memory_some: f32,
    /// All tasks waited for memory.
    pub memory_full: f32,
    /// At least one task waited for I/O.
    pub io_some: f32,
    /// All tasks waited for I/O.
    pub io_full: f32,
}

/// Whether a node is alive from the cluster's point of view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Not declared dead: its heartbeat is recent, or no scheduler has acted on its silence yet.
    Alive,
    /// Declared dead: its pods are being returned to the queue, or have been.
    Dead,
}

impl NodeState {
    /// Returns the name of this state in Redis and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            NodeState::Alive => "alive",
            NodeState::Dead => "dead",
        }
    }
}

/// The kind of worker that serves a node's queues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// kubeleet's own worker.
    #[default]
    Kubeleet,
    /// Another program that writes `hb:<worker>` and serves the node's queues. It cannot be fenced, and it
    /// cannot be made to stop a pod. Serialized as `"guest"`.
    #[serde(rename = "guest")]
    External,
}

/// What a worker reports about itself when it registers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// Labels of the node, such as `zone=a`.
    pub labels: BTreeMap<String, String>,
    /// Resources that the node offers to pods: what its machine has, less what is kept for the system.
    pub capacity: Resources,
    /// What of the machine is kept for the system.
    #[serde(default)]
    pub reserved: Resources,
    /// Container runtime: `docker`, `process` or `sim`.
    pub runtime: String,
    /// Name and version that the container engine reports.
    pub engine_version: String,
    /// The lasting id of the container engine, which changes when the machine is another one, or was set up
    /// anew; empty if the engine has none.
    #[serde(default)]
    pub engine_id: String,
    /// Version of kubeleet on the node.
    pub version: String,
    /// What the worker's settings say. `None` for an external worker, and for one of a version that
    /// registered none.
    #[serde(default)]
    pub settings: Option<NodeSettings>,
}

/// Settings of a worker that APIs and schedulers have to know.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeSettings {
    /// The id of its key for secrets; `None` without a key.
    pub secret_key: Option<String>,
    /// What of its host pods may have.
    pub host: HostAccess,
}

impl NodeSettings {
    /// Returns the stored form: the session that has them, and JSON. A version before this one stores none:
    /// what an earlier session has left does not count.
    pub fn to_stored(&self, session: &Incarnation) -> String {
        let settings = serde_json::to_string(self).expect("texts and lists serialize");
        format!("{session} {settings}")
    }

    /// Reads the stored form; `None` if it is none, or that of another session.
    pub fn from_stored(text: &str, session: &Incarnation) -> Option<Self> {
        let (of, settings) = text.split_once(' ')?;
        serde_json::from_str(settings).ok().filter(|_| of == session.to_string())
    }
}

impl NodeInfo {
    /// Returns whether pods of a runtime have the ports of the machine: two of them cannot listen on the same
    /// one.
    pub fn runtime_has_machine_ports(runtime: &str) -> bool {
        runtime == "process"
    }
}

/// The directory of a node that is to be shared with other nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedVolumesState {
    /// It is the one of the cluster: pods with shared volumes can run on the node.
    Ready,
    /// It is another one, or cannot be used: why.
    Refused(String),
}

impl SharedVolumesState {
    /// Returns it as it is stored and shown: `ready`, or why not.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Ready => "ready",
            Self::Refused(why) => why,
        }
    }

    /// Reads it back; `None` for an empty text.
    pub fn from_text(text: String) -> Option<Self> {
        match text.as_str() {
            "" => None,
            "ready" => Some(Self::Ready),
            _ => Some(Self::Refused(text)),
        }
    }
}

/// A pod of a service without a record, whose container a node has and leaves alone. No other pod is to be
/// started in its slot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HeldPod {
    /// Its service.
    pub service: ServiceName,
    /// Index of its replica.
    pub replica: u32,
    /// The pod.
    pub pod: PodId,
}

impl HeldPod {
    /// Returns the line of the node's record.
    pub fn to_line(&self) -> String {
        format!("{} {} {}", self.service, self.replica, self.pod)
    }

    /// Reads a line back; `None` if it is none.
    pub fn from_line(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let service = ServiceName::new(words.next()?).ok()?;
        Some(Self { service, replica: words.next()?.parse().ok()?, pod: PodId::new(words.next()?).ok()? })
    }
}

/// The record of a node in Redis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Name of the node.
    pub name: NodeName,
    /// Whether the node runs kubeleet's worker or an external one.
    pub kind: NodeKind,
    /// Whether the node is alive or was declared dead.
    pub state: NodeState,
    /// Current registration of the worker; `None` for an external worker.
    pub incarnation: Option<Incarnation>,
    /// Time of the last heartbeat.
    pub beat: RedisMillis,
    /// Times of failure detection of the worker. `None` for an external worker, and for one of a version
    /// that registered none.
    #[serde(default)]
    pub timing: Option<Timing>,
    /// Time of the worker's last registration.
    pub registered_at: RedisMillis,
    /// Time of the first registration under this name.
    #[serde(default)]
    pub created_at: RedisMillis,
    /// Whether an operator has excluded the node from new assignments.
    pub cordoned: bool,
    /// The container engine's last error; `None` while the engine works.
    pub engine_problem: Option<String>,
    /// What of the node's disk is full, in a sentence; `None` while there is room.
    #[serde(default)]
    pub disk_problem: Option<String>,
    /// What else is wrong with the node, in sentences: pods run and are placed there nevertheless.
    #[serde(default)]
    pub problems: Vec<String>,
    /// The pods of services that have no record, and whose containers the node has and leaves alone.
    #[serde(default)]
    pub held_pods: Vec<HeldPod>,
    /// What the worker reported about itself when it registered.
    pub facts: NodeInfo,
    /// The directory for shared volumes; `None` if the node declares none.
    #[serde(default)]
    pub shared_volumes: Option<SharedVolumesState>,
    /// Resources reserved for the pods assigned to the node.
    pub used: Resources,
    /// The host ports in use, such as `8080/tcp`, each with the name of its pod.
    #[serde(default)]
    pub host_ports: BTreeMap<String, String>,
    /// Pressure at the last heartbeat; `None` if the node's kernel does not report it.
    pub psi: Option<Psi>,
}
