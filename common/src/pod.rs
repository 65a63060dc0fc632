//! The record of a pod: everything about it that changes. Its payload does not change.

use serde::{Deserialize, Serialize};

use crate::RedisMillis;
use crate::ids::{AssignmentId, NodeName, PodId, PodName, ServiceName, SpecId};
use crate::lifecycle::Phase;
use crate::network::PublishedPort;
use crate::node::Resources;

/// The record `pod:<uuid>` in Redis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRecord {
    /// Unique id of the pod.
    pub id: PodId,
    /// Name of the pod: the first part of its container's name.
    pub name: PodName,
    /// Phase of the pod's life cycle.
    pub phase: Phase,
    /// Index of the pod among the pods of its service.
    pub replica: u32,
    /// Image of the pod's first container, as in the payload.
    pub image: String,
    /// Service that the pod belongs to; `None` for a pushed pod.
    pub service: Option<ServiceName>,
    /// Specification of the pod; `None` for a pushed pod.
    pub spec: Option<SpecId>,
    /// Generation of the service that the pod was created from; 0 for a pushed pod.
    pub generation: u64,
    /// Node that the pod is assigned to; `None` while it waits for one.
    pub node: Option<NodeName>,
    /// Id of the assignment to that node.
    pub assignment: Option<AssignmentId>,
    /// Number of start attempts since the pod last ran.
    pub attempts: u32,
    /// Number of times the container was restarted after it had ended by itself.
    pub restarts: u32,
    /// Resources reserved for the pod.
    pub request: Resources,
    /// Ports that the pod takes on its node.
    #[serde(default)]
    pub host_ports: String,
    /// Time at which the record was created.
    pub created_at: RedisMillis,
    /// Time at which the pod entered its phase.
    pub since: RedisMillis,
    /// Why the pod is not as it should be: `Unschedulable`, `ImagePullBackOff`, `CrashLoopBackOff` …; empty
    /// when it is healthy.
    pub reason: String,
    /// The same in a sentence, with the container engine's own words if there are any.
    pub message: String,
    /// Exit code of the container's last run; `None` if it has not ended yet.
    pub exit_code: Option<i64>,
    /// Address of the container; empty while its node has not reported one.
    pub address: String,
    /// Ports of the container that are published on its node; empty while its node has not reported any.
    #[serde(default)]
    pub published_ports: Vec<PublishedPort>,
}

/// A reason why a pod fits no node at the moment, and the nodes that it applies to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Refusal {
    /// The reason in one word: `Cordoned`, `InsufficientMemory` …
    pub reason: String,
    /// Number of nodes with this reason.
    pub count: usize,
    /// Some of these nodes, each with the details. At most 20.
    pub nodes: Vec<NodeRefusal>,
}

impl PodRecord {
    /// Returns whether the pod runs and has no problem.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Running && self.reason.is_empty()
    }
}

impl Refusal {
    /// Maximum number of nodes in `nodes`. More would only repeat the same sentence.
    pub const MAX_EXAMPLES: usize = 20;
}

/// Why a pod does not fit one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeRefusal {
    /// Name of the node.
    pub node: String,
    /// The details, for example "needs 2 GiB, 1.2 GiB free".
    pub detail: String,
}
