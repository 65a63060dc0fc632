//! A pod as `GET /pod` shows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use model::ids::{AssignmentId, NodeName, PodId, PodName, ServiceName};
use model::network::PublishedPort;
use model::pod::image::ImageContent;
use model::pod::lifecycle::Phase;
use model::pod::{ContainerStatus, EndedRun, Refusal};
use model::spec::PlacementProfile;

/// How each node looks for a pod, as if it were placed now: its own node counts without it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PodPlacementView {
    /// Unique id of the pod.
    pub uuid: PodId,
    /// Name of the pod: the first part of its container's name.
    pub name: PodName,
    /// Index of the pod among the pods of its service.
    pub replica: u32,
    /// Phase of the pod's life cycle.
    pub phase: Phase,
    /// Node that the pod is assigned to; null while it waits for one.
    pub node: Option<NodeName>,
    /// Why it waits, in a sentence; empty if it does not.
    pub message: String,
    /// How the nodes are compared.
    #[serde(default)]
    pub profile: PlacementProfile,
    /// The smallest change that would let it run, in a sentence with the command; empty if it fits a node, or
    /// if none is known.
    pub change: String,
    /// Number of nodes that were judged.
    pub node_count: u64,
    /// Number of nodes that could run the pod.
    pub fitting: u64,
    /// At most 100: those that could run it, in the order in which a scheduler would take them, then the
    /// others.
    pub nodes: Vec<JudgedNode>,
}

/// A node as the scheduler sees it for one pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JudgedNode {
    /// Its name.
    pub node: NodeName,
    /// Its load in points: the lowest gets the pod.
    pub load: f64,
    /// The parts of its load that are not zero.
    pub terms: Vec<LoadTermView>,
    /// Why it cannot run the pod; empty if it can.
    pub objections: Vec<NodeObjection>,
}

/// A part of a node's load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LoadTermView {
    /// One word, such as `pod_share`, `cpu_some` or `node_siblings`.
    pub term: String,
    /// Percent, pods or uses.
    pub value: f64,
    /// Its points.
    pub points: f64,
}

/// Why a node cannot run a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeObjection {
    /// One word, such as `Constraint` or `InsufficientMemory`.
    pub reason: String,
    /// A sentence.
    pub detail: String,
}

/// A pod: one replica of a service, or a pod that a client pushed to a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PodView {
    /// Unique id of the pod.
    pub uuid: PodId,
    /// Name of the pod: the first part of its container's name.
    pub name: PodName,
    /// Phase of the pod's life cycle.
    pub phase: Phase,
    /// Since when the pod is ready; null if it is not.
    pub ready_since: Option<String>,
    /// Why the pod is not as it should be, in one word; empty when it is healthy.
    pub reason: String,
    /// The same in a sentence, with the container engine's own words if there are any.
    pub message: String,
    /// Service that the pod belongs to; null for a pushed pod.
    pub service: Option<ServiceName>,
    /// Index of the pod among the pods of its service.
    pub replica: u32,
    /// Generation of the service that the pod was created from; 0 for a pushed pod.
    pub generation: u64,
    /// Container image.
    pub image: String,
    /// Node that the pod is assigned to; null while it waits for one.
    pub node: Option<NodeName>,
    /// Id of the assignment to that node; a new one for every assignment.
    pub assignment: Option<AssignmentId>,
    /// Number of start attempts since the pod last ran.
    pub attempts: u32,
    /// Number of times the container was restarted after it had ended by itself.
    pub restarts: u32,
    /// Exit code of the container's last run; null if it has not ended yet.
    pub exit_code: Option<i64>,
    /// Address of the container; empty while it is unknown.
    pub address: String,
    /// Ports of the container that are published on its node; empty while they are unknown.
    #[serde(default)]
    pub ports: Vec<PublishedPort>,
    /// Ports that it takes on its node, such as `8080/tcp`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_ports: Vec<String>,
    /// The ids of named resources that it has, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, Vec<String>>,
    /// The ids of its images when its node started it; empty while unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageContent>,
    /// Each of several containers; empty for a pod with one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<ContainerStatus>,
    /// The last runs of its containers that have ended, oldest first. Only in the response to a request for a
    /// single pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<EndedRun>,
    /// CPU reserved for the pod, in thousandths of a core.
    pub cpu_millis: u64,
    /// Memory reserved for the pod, in bytes.
    pub memory_bytes: u64,
    /// Processes and threads reserved for the pod.
    #[serde(default)]
    pub pids: u64,
    /// Disk reserved for the volumes of the pod, in bytes.
    #[serde(default)]
    pub disk_bytes: u64,
    /// When the pod was created.
    pub created_at: String,
    /// When the pod entered its current phase.
    pub since: String,
    /// Why the pod fits no node at the moment. Only in the response to a request for a single pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<Refusal>,
}
