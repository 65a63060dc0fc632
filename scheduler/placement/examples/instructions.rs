//! Places pods on nodes once, deterministically, for `scripts/instructions`: `instructions <pods> <nodes>`.

#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]

#[path = "../benches/fixture/mod.rs"]
mod fixture;

use fixture::{NOW, node};
use kubeleet_placement::{ClusterSnapshot, Outcome, PlacementPolicy, PodRequest, Requirements, decide};
use model::ids::PodId;
use model::node::Resources;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>().unwrap());
    let (pods, nodes) = (arguments.next().unwrap(), arguments.next().unwrap());
    let policy = PlacementPolicy::default();
    let mut snapshot = ClusterSnapshot::new(policy.weights);
    (0..nodes).for_each(|i| snapshot.upsert(node(i, i as u64 % 40)));
    let pods: Vec<PodRequest> = (0..pods).map(pod).collect();
    let decisions = decide(&snapshot, NOW, &policy, &pods);
    assert!(decisions.iter().all(|decision| matches!(decision.outcome, Outcome::Place(_))));
}

fn pod(i: usize) -> PodRequest {
    let extra_cpu = if i.is_multiple_of(2) { 0 } else { i as u64 };
    PodRequest {
        id: PodId::new(format!("pod{i}")).unwrap(),
        requirements: Requirements {
            request: Resources {
                cpu_millis: 100 + extra_cpu,
                memory_bytes: 64 << 20,
                ..Resources::default()
            },
            ..Requirements::default()
        },
        service: None,
    }
}
