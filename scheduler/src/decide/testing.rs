//! Fixtures: a healthy node, which a test changes where it needs to, and a pod.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use common::RedisMillis;
use common::ids::{Incarnation, NodeName, PodId};
use common::node::{Node, NodeInfo, NodeKind, NodeState, Psi, Resources};

use super::{PodRequest, Requirements};

/// The time of all decisions in tests.
pub(super) const NOW: RedisMillis = 1_000_000;

#[derive(Debug, Clone)]
pub(super) struct NodeBuilder(Node);

/// Returns a healthy, idle node of 4 cores, 8 GiB and 110 pods.
pub(super) fn node(name: &str) -> NodeBuilder {
    NodeBuilder(Node {
        name: NodeName::new(name).unwrap(),
        kind: NodeKind::Kubeleet,
        state: NodeState::Alive,
        incarnation: Some(Incarnation::new(format!("1/{name}")).unwrap()),
        beat: NOW - 1_000,
        timing: None,
        registered_at: 1,
        created_at: 1,
        cordoned: false,
        engine_problem: None,
        disk_problem: None,
        problems: Vec::new(),
        held_pods: Vec::new(),
        shared_volumes: None,
        facts: NodeInfo {
            labels: BTreeMap::new(),
            capacity: Resources {
                cpu_millis: 4_000,
                memory_bytes: 8 << 30,
                pids: 1_000,
                disk_bytes: 100 << 30,
                pods: 110,
            },
            reserved: Resources::default(),
            runtime: "sim".into(),
            engine_version: "1".into(),
            engine_id: String::new(),
            version: "1".into(),
            settings: None,
        },
        used: Resources::default(),
        host_ports: BTreeMap::new(),
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

/// Returns a pod with this request. Without one, it needs only its image.
pub(super) fn pod(id: usize, cpu_millis: u64, memory_bytes: u64) -> PodRequest {
    PodRequest {
        id: PodId::new(format!("pod-{id}")).unwrap(),
        requirements: Requirements {
            request: Resources { cpu_millis, memory_bytes, ..Resources::default() },
            needs_only_image: cpu_millis == 0 && memory_bytes == 0,
            ..Requirements::default()
        },
        service: None,
    }
}
