//! Nodes: the worker's registration and the cluster's record.

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

/// A worker's registration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// Labels of the node, such as `zone=a`.
    pub labels: BTreeMap<String, String>,
    /// Resources offered to pods: the machine's less those kept for the system.
    pub capacity: Resources,
    /// Resources kept for the system.
    #[serde(default)]
    pub reserved: Resources,
    /// Container runtime: `docker`, `process` or `sim`.
    pub runtime: String,
    /// Name and version of the container engine.
    pub engine_version: String,
    /// The engine's lasting id, if any; it changes with the machine or a new setup.
    #[serde(default)]
    pub engine_id: String,
    /// Version of kubeleet.
    pub version: String,
    /// The worker's settings, if registered; external workers have none.
    #[serde(default)]
    pub settings: Option<NodeSettings>,
}

/// Settings of a worker that APIs and schedulers need.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeSettings {
    /// Id of its key for secrets; `None` without a key.
    pub secret_key: Option<String>,
    /// The access to the host that it grants.
    pub host: HostAccess,
}

impl NodeSettings {
    /// Returns the stored form: the session and JSON. Another session's settings do not count.
    pub fn to_stored(&self, session: &Incarnation) -> String {
        let settings = serde_json::to_string(self).expect("texts and lists serialize");
        format!("{session} {settings}")
    }

    /// Parses the stored form; `None` if malformed or of another session.
    pub fn from_stored(text: &str, session: &Incarnation) -> Option<Self> {
        let (of, settings) = text.split_once(' ')?;
        serde_json::from_str(settings).ok().filter(|_| of == session.to_string())
    }
}

impl NodeInfo {
    /// Returns true if pods of this runtime share the machine's ports: two cannot listen on the same one.
    pub fn runtime_has_machine_ports(runtime: &str) -> bool {
        runtime == "process"
    }
}

/// A node's directory for shared volumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedVolumesState {
    /// The cluster's directory: pods with shared volumes can run on the node.
    Ready,
    /// Another directory, or an unusable one, with the reason.
    Refused(String),
}

impl SharedVolumesState {
    /// Returns the stored and shown form: `ready`, or the reason.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Ready => "ready",
            Self::Refused(why) => why,
        }
    }

    /// Parses [`Self::as_str`]; `None` for an empty text.
    pub fn from_text(text: String) -> Option<Self> {
        match text.as_str() {
            "" => None,
            "ready" => Some(Self::Ready),
            _ => Some(Self::Refused(text)),
        }
    }
}

/// A service's pod without a record, whose container a node keeps. No other pod may start in its slot.
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
    /// Returns the line for the node's record.
    pub fn to_line(&self) -> String {
        format!("{} {} {}", self.service, self.replica, self.pod)
    }

    /// Parses a line.
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
    /// kubeleet's own worker or an external one.
    pub kind: NodeKind,
    /// Alive or declared dead.
    pub state: NodeState,
    /// Current registration of the worker; `None` for an external worker.
    pub incarnation: Option<Incarnation>,
    /// Time of the last heartbeat.
    pub beat: RedisMillis,
    /// The worker's failure-detection timing, if registered; external workers have none.
    #[serde(default)]
    pub timing: Option<Timing>,
    /// Time of the worker's last registration.
    pub registered_at: RedisMillis,
    /// Time of the first registration under this name.
    #[serde(default)]
    pub created_at: RedisMillis,
    /// True if an operator has excluded the node from new assignments.
    pub cordoned: bool,
    /// The container engine's last error, while it does not work.
    pub engine_problem: Option<String>,
    /// The full disk, in a sentence; `None` while there is room.
    #[serde(default)]
    pub disk_problem: Option<String>,
    /// Other problems, in sentences. Pods still run and are placed there.
    #[serde(default)]
    pub problems: Vec<String>,
    /// Services' pods without a record, whose containers the node keeps.
    #[serde(default)]
    pub held_pods: Vec<HeldPod>,
    /// The worker's registration.
    pub facts: NodeInfo,
    /// The directory for shared volumes; `None` if the node declares none.
    #[serde(default)]
    pub shared_volumes: Option<SharedVolumesState>,
    /// Resources reserved for the pods assigned to the node.
    pub used: Resources,
    /// The host ports in use, such as `8080/tcp`, each with the name of its pod.
    #[serde(default)]
    pub host_ports: BTreeMap<String, String>,
    /// Pressure at the last heartbeat; `None` if the kernel does not report it.
    pub psi: Option<Psi>,
}
