//! The mutable record of a pod: `pod:<uuid>`.

use serde::{Deserialize, Serialize};

use crate::RedisMillis;
use crate::ids::{AssignmentId, ContainerName, NodeName, PodId, PodName, ServiceName, SpecId};
use crate::network::PublishedPort;
use crate::node::{ResourceIds, Resources};
use crate::pod::image::ImageContent;
use crate::pod::lifecycle::Phase;
use crate::pod::slot::Slot;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRecord {
    pub id: PodId,
    pub name: PodName,
    pub phase: Phase,
    pub replica: u32,
    /// The image of the first container.
    pub image: String,
    /// `None` for a pushed pod.
    pub service: Option<ServiceName>,
    pub spec: Option<SpecId>,
    /// At its creation; 0 for a pushed pod.
    pub generation: u64,
    pub node: Option<NodeName>,
    pub assignment: Option<AssignmentId>,
    /// Since it last ran.
    pub attempts: u32,
    /// After it ended by itself.
    pub restarts: u32,
    pub request: Resources,
    #[serde(default)]
    pub host_ports: String,
    /// Of named resources.
    #[serde(default)]
    pub resource_ids: ResourceIds,
    pub created_at: RedisMillis,
    /// When this phase began.
    pub since: RedisMillis,
    /// One word; empty while healthy.
    pub reason: String,
    pub message: String,
    /// The exit code of the last run.
    pub exit_code: Option<i64>,
    pub address: String,
    #[serde(default)]
    pub published_ports: Vec<PublishedPort>,
    /// At its start.
    #[serde(default)]
    pub images: Vec<ImageContent>,
    pub ready_since: Option<RedisMillis>,
    /// Adopted into a later generation with the same specification.
    pub kept_at: Option<RedisMillis>,
    /// If the pod has several.
    #[serde(default)]
    pub containers: Vec<ContainerStatus>,
    /// Oldest first.
    #[serde(default)]
    pub runs: Vec<EndedRun>,
}

/// One of several containers of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ContainerStatus {
    /// Its name in the pod.
    pub name: ContainerName,
    /// Whether it was started, and has ended.
    pub state: ContainerProgress,
    /// Number of times it was restarted after it had ended by itself.
    #[serde(default)]
    pub restarts: u32,
    /// Exit code of its last run; null if it has not ended yet.
    pub exit_code: Option<i64>,
    /// Why it is not as it should be, in one word; empty when it is well.
    #[serde(default)]
    pub reason: String,
    /// The same in a sentence.
    #[serde(default)]
    pub message: String,
}

/// How far a container is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContainerProgress {
    #[default]
    /// It was not started yet: it depends on another container, or its image is missing.
    Waiting,
    /// Its process runs.
    Running,
    /// Its process has ended.
    Ended,
}

/// A run of a container that has ended. It outlives the container, and the pod's move to another node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct EndedRun {
    /// Identifies it among the runs of the pod.
    pub id: String,
    /// The container, if the pod has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerName>,
    /// The node it ran on.
    pub node: NodeName,
    /// Time at which its end was recorded, in milliseconds since 1970.
    #[serde(default)]
    pub ended_at: RedisMillis,
    /// How long it ran, in milliseconds; null if its worker was restarted meanwhile.
    pub ran_for_ms: Option<u64>,
    /// Its exit code; 128 + n for signal n.
    pub exit_code: i64,
    /// Whether the kernel killed it because it exceeded its memory limit.
    #[serde(default)]
    pub out_of_memory: bool,
    /// The last lines that it wrote.
    #[serde(default)]
    pub last_output: String,
}

impl EndedRun {
    /// Per container.
    pub const KEPT: usize = 5;
    /// In bytes.
    pub const MAX_OUTPUT: usize = 512;

    /// Once: engineers look at the output first.
    pub fn explain(message: String, last_output: &str) -> String {
        let addition = format!("; it wrote at last: {}", last_output.trim());
        if last_output.trim().is_empty() || message.contains(&addition) {
            message
        } else {
            message + &addition
        }
    }

    pub fn signal(&self) -> Option<i64> {
        (129..=192).contains(&self.exit_code).then(|| self.exit_code - 128)
    }
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
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Running && self.reason.is_empty()
    }

    /// Otherwise the slot is void: another program has copied or renamed slots.
    pub fn is_of(&self, service: &ServiceName, slot: Slot) -> bool {
        self.service.as_ref() == Some(service) && self.replica == slot.replica
    }
}

impl Refusal {
    /// More would repeat the same sentence.
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
