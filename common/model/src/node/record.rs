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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeInfo {
    pub labels: BTreeMap<String, String>,
    /// Offered to pods: the machine's less those kept for the system.
    pub capacity: Resources,
    /// Kept for the system.
    #[serde(default)]
    pub reserved: Resources,
    /// `docker`, `process` or `sim`.
    pub runtime: String,
    /// Name and version.
    pub engine_version: String,
    /// Lasting, if any; it changes with the machine or a new setup.
    #[serde(default)]
    pub engine_id: String,
    /// Of kubeleet.
    pub version: String,
    /// External workers have none.
    #[serde(default)]
    pub settings: Option<NodeSettings>,
}

/// Those of a worker that APIs and schedulers need.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeSettings {
    /// Id of its key for secrets.
    pub secret_key: Option<String>,
    pub host: HostAccess,
}

impl NodeSettings {
    /// The session and JSON: another session's settings do not count.
    pub fn to_stored(&self, session: &Incarnation) -> String {
        let settings = serde_json::to_string(self).expect("texts and lists serialize");
        format!("{session} {settings}")
    }

    /// `None` if malformed or of another session.
    pub fn from_stored(text: &str, session: &Incarnation) -> Option<Self> {
        let (of, settings) = text.split_once(' ')?;
        serde_json::from_str(settings).ok().filter(|_| of == session.to_string())
    }
}

impl NodeInfo {
    /// Its pods share the machine's ports: two cannot listen on the same one.
    pub fn runtime_has_machine_ports(runtime: &str) -> bool {
        runtime == "process"
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedVolumesState {
    /// The cluster's directory: pods with shared volumes can run on the node.
    Ready,
    /// Another directory, or an unusable one, with the reason.
    Refused(String),
}

impl SharedVolumesState {
    /// `ready`, or the reason.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Ready => "ready",
            Self::Refused(why) => why,
        }
    }

    /// `None` for an empty text.
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
    pub service: ServiceName,
    pub replica: u32,
    pub pod: PodId,
}

impl HeldPod {
    /// For the node's record.
    pub fn to_line(&self) -> String {
        format!("{} {} {}", self.service, self.replica, self.pod)
    }

    pub fn from_line(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let service = ServiceName::new(words.next()?).ok()?;
        Some(Self { service, replica: words.next()?.parse().ok()?, pod: PodId::new(words.next()?).ok()? })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub name: NodeName,
    pub kind: NodeKind,
    pub state: NodeState,
    /// `None` for an external worker.
    pub incarnation: Option<Incarnation>,
    /// The last heartbeat.
    pub beat: RedisMillis,
    /// External workers have none.
    #[serde(default)]
    pub timing: Option<Timing>,
    /// The worker's last registration.
    pub registered_at: RedisMillis,
    /// The first registration under this name.
    #[serde(default)]
    pub created_at: RedisMillis,
    /// Excluded from new assignments by an operator.
    pub cordoned: bool,
    /// The engine's last error, while it does not work.
    pub engine_problem: Option<String>,
    /// A sentence; `None` while there is room.
    #[serde(default)]
    pub disk_problem: Option<String>,
    /// Sentences; pods still run and are placed there.
    #[serde(default)]
    pub problems: Vec<String>,
    /// Without a record; the node keeps their containers.
    #[serde(default)]
    pub held_pods: Vec<HeldPod>,
    pub facts: NodeInfo,
    /// `None` if the node declares no directory.
    #[serde(default)]
    pub shared_volumes: Option<SharedVolumesState>,
    /// Reserved for assigned pods.
    pub used: Resources,
    /// Such as `8080/tcp`, each with the name of its pod.
    #[serde(default)]
    pub host_ports: BTreeMap<String, String>,
    /// At the last heartbeat; `None` if the kernel does not report it.
    pub psi: Option<Psi>,
}
