//! Fixtures: a healthy node, which tests modify, and a pod.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use model::RedisMillis;
use model::ids::{Incarnation, PodId, ResourceName, ServiceName, SpecId};
use model::node::{Node, NodeSettings, Psi, Resources};
use model::spec::{FORM_WITH_RULES, NamedRequest};
use testkit::fixtures;

use crate::{Generation, PodRequest, Requirements};

pub(crate) const NOW: RedisMillis = 1_000_000;

#[derive(Debug, Clone)]
pub(crate) struct NodeBuilder(Node);

pub(crate) fn node(name: &str) -> NodeBuilder {
    let capacity =
        Resources { cpu_millis: 4_000, memory_bytes: 8 << 30, pids: 1_000, disk_bytes: 100 << 30, pods: 110 };
    NodeBuilder(Node {
        incarnation: Some(Incarnation::new(format!("1/{name}")).unwrap()),
        beat: NOW - 1_000,
        registered_at: 1,
        created_at: 1,
        psi: Some(Psi::default()),
        ..fixtures::node(name, capacity)
    })
}

impl NodeBuilder {
    pub(crate) fn pods(self, used: u64, capacity: u64) -> Self {
        self.with(|n| (n.used.pods, n.facts.capacity.pods) = (used, capacity))
    }

    pub(crate) fn cpu(self, used: u64, capacity: u64) -> Self {
        self.with(|n| (n.used.cpu_millis, n.facts.capacity.cpu_millis) = (used, capacity))
    }

    pub(crate) fn memory(self, used: u64, capacity: u64) -> Self {
        self.with(|n| (n.used.memory_bytes, n.facts.capacity.memory_bytes) = (used, capacity))
    }

    /// `gpu=0,1`; of these, pods have `given`.
    pub(crate) fn offers(self, declared: &str, given: &[&str]) -> Self {
        let resources = declared.parse().unwrap();
        let settings = NodeSettings { resources, forms: FORM_WITH_RULES, ..NodeSettings::default() };
        self.with(|n| {
            n.facts.settings = Some(settings);
            n.given_ids = given.iter().map(|id| ((*id).to_owned(), "web".to_owned())).collect();
        })
    }

    pub(crate) fn psi(self, change: impl FnOnce(&mut Psi)) -> Self {
        self.with(|n| change(n.psi.get_or_insert_default()))
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Node)) -> Self {
        change(&mut self.0);
        self
    }

    pub(crate) fn build(self) -> Node {
        self.0
    }
}

pub(crate) fn pod(id: usize, cpu_millis: u64, memory_bytes: u64) -> PodRequest {
    PodRequest {
        id: PodId::new(format!("pod-{id}")).unwrap(),
        requirements: Requirements {
            request: Resources { cpu_millis, memory_bytes, ..Resources::default() },
            needs_only_image: cpu_millis == 0 && memory_bytes == 0,
            ..Requirements::default()
        },
        generation: None,
        ordinal: None,
        target: None,
    }
}

pub(crate) fn generation(service: &str, spec: &str) -> Generation {
    Generation { service: ServiceName::new(service).unwrap(), spec: SpecId::new(spec).unwrap() }
}

/// `gpu=1 slots=2`.
pub(crate) fn ids(words: &str) -> Option<Arc<NamedRequest>> {
    let counts = words.split(' ').filter_map(|word| word.split_once('='));
    let count = |(name, count): (&str, &str)| (ResourceName::new(name).unwrap(), count.parse().unwrap());
    Some(Arc::new(counts.map(count).collect()))
}
