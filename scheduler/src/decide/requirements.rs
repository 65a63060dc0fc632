//! What a pod requires of a node.

use common::ids::{NodeName, VolumeName};
use common::node::Resources;
use common::spec::{HostPorts, PodSpec};

/// What a pod requires of a node: all that a filter knows of a pod. Pods with equal requirements form one
/// class, and a node that refuses one of them refuses all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Requirements {
    /// CPU to reserve, in thousandths of a core.
    pub cpu_millis: u64,
    /// Memory to reserve, in bytes.
    pub memory_bytes: u64,
    /// Whether an external worker can run the pod; see [`PodSpec::needs_only_image`].
    pub needs_only_image: bool,
    /// Ports that the pod takes on its node.
    pub host_ports: HostPorts,
    /// Its volumes that have their data somewhere already. Empty for nearly all pods.
    pub bound_volumes: Vec<BoundVolume>,
}

/// A volume whose data is on a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BoundVolume {
    /// The volume.
    pub name: VolumeName,
    /// The node that has its data.
    pub node: NodeName,
    /// Whether the data is about to be removed: no pod can have it before it is gone.
    pub is_removing: bool,
}

impl Requirements {
    /// Returns what a pod with this specification requires.
    pub fn of(spec: &PodSpec) -> Self {
        Self {
            cpu_millis: spec.cpu_millis(),
            memory_bytes: spec.memory_bytes(),
            needs_only_image: spec.needs_only_image(),
            host_ports: spec.host_ports(),
            bound_volumes: Vec::new(),
        }
    }

    /// Returns the resources to reserve on the node. Every pod takes one pod slot.
    pub fn resources(&self) -> Resources {
        Resources { cpu_millis: self.cpu_millis, memory_bytes: self.memory_bytes, pods: 1 }
    }
}
