//! A pod to be placed, and what it requires of a node.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use model::ids::{NodeName, PodId, ServiceName, VolumeName};
use model::node::Resources;
use model::node::host_access::HostRequest;
use model::service::volume::UnreportedNode;
use model::spec::{HostPorts, PodSpec};

/// A pod to be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRequest {
    /// The pod.
    pub id: PodId,
    /// What it requires of its node.
    pub requirements: Requirements,
    /// The service that it belongs to; none for a pod that was pushed to a queue.
    pub service: Option<ServiceName>,
}

impl PodRequest {
    /// Returns what people know the pod by: its service, or its own id.
    pub fn name(&self) -> &str {
        self.service.as_ref().map_or(self.id.as_str(), ServiceName::as_str)
    }
}

/// What a pod requires of a node: all that a filter knows of a pod. Pods with equal requirements form one
/// class, and a node that refuses one of them refuses all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requirements {
    /// Resources to reserve, except the pod's slot.
    pub request: Resources,
    /// Whether an external worker can run the pod; see [`PodSpec::needs_only_image`].
    pub needs_only_image: bool,
    /// Ports that the pod takes on its node.
    pub host_ports: HostPorts,
    /// What it asks of the host. `None` for nearly all pods.
    pub host: Option<Arc<HostRequest>>,
    /// Whether its node needs the directory for shared volumes.
    pub needs_shared_directory: bool,
    /// Where the data of its volumes is. `None` if it has none, as nearly all pods, or if they can be
    /// anywhere.
    pub volumes: Option<Box<VolumePlaces>>,
}

/// Where the data of a pod's volumes is, or may be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct VolumePlaces {
    /// Volumes that have their data somewhere already.
    pub bound: Vec<BoundVolume>,
    /// One whose data may be on a node that has not told which volumes it has.
    pub unreported: Option<UnreportedVolume>,
    /// One of which several nodes have copies that contradict each other.
    pub contested: Option<ContestedVolume>,
    /// Copies that were given up: a new volume cannot be where one of them is.
    pub given_up: Vec<GivenUpCopy>,
}

impl VolumePlaces {
    /// Returns these places, or `None` if they keep a pod from no node.
    pub fn into_requirement(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

/// A volume whose place is not known, because nodes have not reported.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UnreportedVolume {
    /// The volume.
    pub name: VolumeName,
    /// The machines that may have its data.
    pub nodes: Vec<UnreportedNode>,
}

/// A volume between whose copies an operator has to choose.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ContestedVolume {
    /// The volume.
    pub name: VolumeName,
    /// The nodes that have copies.
    pub nodes: Vec<NodeName>,
}

/// A copy of a volume that was given up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GivenUpCopy {
    /// The volume.
    pub name: VolumeName,
    /// The node that has it.
    pub node: NodeName,
}

/// A volume whose data is on a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BoundVolume {
    /// The volume.
    pub name: VolumeName,
    /// The node that has its data.
    pub node: NodeName,
    /// The id of the engine that has its data, if it has one.
    pub engine_id: Option<String>,
    /// Whether the data is about to be removed: no pod can have it before it is gone.
    pub is_removing: bool,
}

/// A hasher takes longer for each write than for its bytes, and this is the largest part of looking up a
/// class: the amounts are one write, and what nearly all pods have in common is none.
impl Hash for Requirements {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Resources { cpu_millis, memory_bytes, pids, disk_bytes, pods: _ } = self.request;
        let bytes = memory_bytes ^ disk_bytes.rotate_left(32);
        state.write_u128(u128::from(cpu_millis ^ pids << 32) << 64 | u128::from(bytes));
        if !self.host_ports.is_empty() {
            self.host_ports.hash(state);
        }
        if let Some(host) = &self.host {
            host.hash(state);
        }
        if self.needs_shared_directory {
            state.write_u8(1);
        }
        if let Some(volumes) = &self.volumes {
            volumes.hash(state);
        }
    }
}

impl Requirements {
    /// Returns what a pod with this specification requires.
    pub fn of(spec: &PodSpec) -> Self {
        Self {
            request: spec.request(),
            needs_only_image: spec.needs_only_image(),
            host_ports: spec.host_ports(),
            host: HostRequest::of(spec).map(Arc::new),
            needs_shared_directory: spec.has_shared_volumes(),
            volumes: None,
        }
    }

    /// Returns the resources to reserve on the node. Every pod takes one pod slot.
    pub fn resources(&self) -> Resources {
        Resources { pods: 1, ..self.request }
    }
}
