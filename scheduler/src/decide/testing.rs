//! Nodes for tests: a well one, changed in what the test is about.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use common::RedisMillis;
use common::ids::{Incarnation, NodeName, PodId};
use common::node::{Node, NodeFacts, NodeKind, NodeState, Psi, Resources};

use super::PodRequest;

/// The moment at which tests decide.
pub(super) const NOW: RedisMillis = 1_000_000;

/// A node in the making.
#[derive(Debug, Clone)]
pub(super) struct NodeBuilder(Node);

/// A well, idle node of 4 cores, 8 GiB and 110 pods.
pub(super) fn node(name: &str) -> NodeBuilder {
    NodeBuilder(Node {
        name: NodeName::new(name).unwrap(),
        kind: NodeKind::Kubeleet,
        state: NodeState::Alive,
        incarnation: Some(Incarnation::new(format!("1/{name}")).unwrap()),
        beat: NOW - 1_000,
        registered_at: 1,
        cordoned: false,
        engine_problem: None,
        facts: NodeFacts {
            labels: BTreeMap::new(),
            capacity: Resources { cpu_millis: 4_000, memory_bytes: 8 << 30, pods: 110 },
            runtime: "sim".into(),
            engine_version: "1".into(),
            version: "1".into(),
        },
        used: Resources::default(),
        psi: Some(Psi::default()),
    })
}

impl NodeBuilder {
    pub(super) fn pods(self, used: u64, capacity: u64) -> Self {
        self.with(|n| (n.used.pods, n.facts.capacity.pods) = (used, capacity))
    }

    pub(super) fn cpu(self, used: u64, capacity: u64) -> Self {
        self.with(|n| (n.used.cpu_millis, n.facts.capacity.cpu_millis) = (used, capacity))
    }

    pub(super) fn memory(self, used: u64, capacity: u64) -> Self {
        self.with(|n| (n.used.memory_bytes, n.facts.capacity.memory_bytes) = (used, capacity))
    }

    pub(super) fn psi(self, change: impl FnOnce(&mut Psi)) -> Self {
        self.with(|n| change(n.psi.get_or_insert_default()))
    }

    pub(super) fn with(mut self, change: impl FnOnce(&mut Node)) -> Self {
        change(&mut self.0);
        self
    }

    pub(super) fn build(self) -> Node {
        self.0
    }
}

/// A pod that asks for this much.
pub(super) fn pod(id: usize, cpu_millis: u64, memory_bytes: u64) -> PodRequest {
    PodRequest {
        id: PodId::new(format!("pod-{id}")).unwrap(),
        request: Resources { cpu_millis, memory_bytes, pods: 1 },
        needs_only_an_image: cpu_millis == 0 && memory_bytes == 0,
        service: None,
    }
}
