//! A pod to be placed, and its requirements.

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
    /// The requirements on its node.
    pub requirements: Requirements,
    /// Its service; `None` for a pod that was pushed to a queue.
    pub service: Option<ServiceName>,
}

impl PodRequest {
    /// Returns the display name of the pod: its service, or its own id.
    pub fn name(&self) -> &str {
        self.service.as_ref().map_or(self.id.as_str(), ServiceName::as_str)
    }
}

/// The requirements of a pod on its node: all that filters know of the pod. Pods with equal requirements form
/// one class, and a node that refuses one of them refuses all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requirements {
    /// Resources to reserve, except the pod's slot.
    pub request: Resources,
    /// True if an external worker can run the pod; see [`PodSpec::needs_only_image`].
    pub needs_only_image: bool,
    /// Its host ports.
    pub host_ports: HostPorts,
    /// The requested host access. `None` for nearly all pods.
    pub host: Option<Arc<HostRequest>>,
    /// True if its node needs the directory for shared volumes.
    pub needs_shared_directory: bool,
    /// The locations of its volumes. `None` for nearly all pods: they have no volumes, or these can be
    /// anywhere.
    pub volumes: Option<Box<VolumePlaces>>,
}

/// The known and possible locations of a pod's volumes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct VolumePlaces {
    /// Volumes that have their data somewhere already.
    pub bound: Vec<BoundVolume>,
    /// A volume whose data may be on a node that has not reported its volumes.
    pub unreported: Option<UnreportedVolume>,
    /// A volume with contradicting copies on several nodes.
    pub contested: Option<ContestedVolume>,
    /// Given-up copies: a new volume cannot be on the same node.
    pub given_up: Vec<GivenUpCopy>,
}

impl VolumePlaces {
    /// Returns these places, or `None` if they restrict no node.
    pub fn into_requirement(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

/// A volume whose location is unknown, because nodes have not reported.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UnreportedVolume {
    /// The volume.
    pub name: VolumeName,
    /// The machines that may have its data.
    pub nodes: Vec<UnreportedNode>,
}

/// A volume with several copies, between which an operator has to choose.
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
    /// The node that has the copy.
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
    /// True if the data is about to be removed: no pod can use it until it is gone.
    pub is_removing: bool,
}

/// A hasher spends more time per write than per byte, and hashing dominates the lookup of a class: so the
/// amounts are one write, and the defaults of nearly all pods add none.
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
    /// Returns the requirements of a pod with this specification.
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
