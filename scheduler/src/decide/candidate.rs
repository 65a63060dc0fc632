//! What filters and scores look at: a node cut down to the few numbers that decide, small enough to be copied.

use common::RedisMillis;
use common::node::{Node, NodeKind, NodeState, Resources};

use super::policy::Weights;
use super::score::{self, Load};

/// The deciding part of a node. A batch works on copies, where `used` grows with each pod it places.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) capacity: Resources,
    pub(super) used: Resources,
    /// What pressure adds to the load.
    pub(super) pressure: Load,
    pub(super) beat: RedisMillis,
    pub(super) state: NodeState,
    pub(super) kind: NodeKind,
    pub(super) cordoned: bool,
    pub(super) engine_well: bool,
}

impl Candidate {
    pub(super) fn of(node: &Node, weights: &Weights) -> Self {
        Self {
            capacity: node.facts.capacity,
            used: node.used,
            pressure: score::pressure_load(node.psi.as_ref(), weights),
            beat: node.beat,
            state: node.state,
            kind: node.kind,
            cordoned: node.cordoned,
            engine_well: node.engine_problem.is_none(),
        }
    }

    pub(super) fn load(&self, weights: &Weights) -> Load {
        self.pressure.saturating_add(score::pod_load(self.used.pods, self.capacity.pods, weights))
    }

    /// What is left. A node can hold more than its capacity when that has shrunk: then nothing is left.
    pub(super) fn free(&self) -> Resources {
        Resources {
            cpu_millis: self.capacity.cpu_millis.saturating_sub(self.used.cpu_millis),
            memory_bytes: self.capacity.memory_bytes.saturating_sub(self.used.memory_bytes),
            pods: self.capacity.pods.saturating_sub(self.used.pods),
        }
    }
}

/// Adds a pod's request to what is used.
pub(super) fn add(used: &mut Resources, request: &Resources) {
    used.cpu_millis = used.cpu_millis.saturating_add(request.cpu_millis);
    used.memory_bytes = used.memory_bytes.saturating_add(request.memory_bytes);
    used.pods = used.pods.saturating_add(request.pods);
}
