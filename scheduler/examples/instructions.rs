//! Decides once about so many pods on so many nodes, for `scripts/instructions` to count what that takes:
//! `instructions <pods> <nodes>`. Nothing in it is random.

#![allow(clippy::unwrap_used, reason = "it fails by panicking")]

use std::collections::BTreeMap;

use common::ids::{NodeName, PodId};
use common::node::{Node, NodeFacts, NodeKind, NodeState, Psi, Resources};
use kubeleet_scheduler::decide::{Outcome, PodRequest, Policy, Snapshot, decide};

const NOW: u64 = 1_000_000;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>().unwrap());
    let (pods, nodes) = (arguments.next().unwrap(), arguments.next().unwrap());
    let policy = Policy::default();
    let mut snapshot = Snapshot::new(policy.weights);
    (0..nodes).for_each(|i| snapshot.upsert(node(i)));
    let pods: Vec<PodRequest> = (0..pods).map(pod).collect();
    let decisions = decide(&snapshot, NOW, &policy, &pods);
    assert!(decisions.iter().all(|decision| matches!(decision.outcome, Outcome::Place(_))));
}

fn node(i: usize) -> Node {
    Node {
        name: NodeName::new(format!("worker{i}")).unwrap(),
        kind: NodeKind::Kubeleet,
        state: NodeState::Alive,
        incarnation: None,
        beat: NOW,
        registered_at: 1,
        cordoned: false,
        engine_problem: None,
        facts: NodeFacts {
            labels: BTreeMap::new(),
            capacity: Resources { cpu_millis: 64_000_000, memory_bytes: 1 << 50, pods: 1_000 },
            runtime: "sim".into(),
            engine_version: "1".into(),
            version: "1".into(),
        },
        used: Resources { pods: i as u64 % 40, ..Resources::default() },
        psi: Some(Psi { cpu_some: (i % 37) as f32, ..Psi::default() }),
    }
}

/// Half of them ask for the same, half each for something of its own.
fn pod(i: usize) -> PodRequest {
    let own = if i.is_multiple_of(2) { 0 } else { i as u64 };
    PodRequest {
        id: PodId::new(format!("pod{i}")).unwrap(),
        request: Resources { cpu_millis: 100 + own, memory_bytes: 64 << 20, pods: 1 },
        needs_only_an_image: false,
        service: None,
    }
}
