//! Decides once about so many pods on so many nodes, for `scripts/instructions` to count what that takes:
//! `instructions <pods> <nodes>`. Nothing in it is random.

#![allow(clippy::unwrap_used, reason = "it fails by panicking")]

#[path = "../benches/fixture/mod.rs"]
mod fixture;

use common::ids::PodId;
use common::node::Resources;
use fixture::{NOW, node};
use kubeleet_scheduler::decide::{Outcome, PodRequest, Policy, Snapshot, decide};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>().unwrap());
    let (pods, nodes) = (arguments.next().unwrap(), arguments.next().unwrap());
    let policy = Policy::default();
    let mut snapshot = Snapshot::new(policy.weights);
    (0..nodes).for_each(|i| snapshot.upsert(node(i, i as u64 % 40)));
    let pods: Vec<PodRequest> = (0..pods).map(pod).collect();
    let decisions = decide(&snapshot, NOW, &policy, &pods);
    assert!(decisions.iter().all(|decision| matches!(decision.outcome, Outcome::Place(_))));
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
