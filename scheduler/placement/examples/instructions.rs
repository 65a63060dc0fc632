//! Places pods on nodes once, deterministically, for `scripts/instructions`:
//! `instructions <alike|different|apart> <pods> <nodes>`.

#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]

#[path = "../benches/fixture/mod.rs"]
mod fixture;

use std::collections::BTreeMap;

use fixture::{NOW, node};
use kubeleet_placement::{
    ClusterSnapshot, Generation, Outcome, PlacedPods, PlacementPolicy, PodRequest, Requirements, decide,
};
use model::ids::{PodId, ServiceName, SpecId};
use model::node::Resources;

/// Pods of each service of `apart`, which is on three zones.
const REPLICAS: usize = 10;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, pods, nodes] = &arguments[..] else { panic!("instructions KIND PODS NODES: {arguments:?}") };
    let (pods, nodes): (usize, usize) = (pods.parse().unwrap(), nodes.parse().unwrap());
    let policy = PlacementPolicy::default();
    let mut snapshot = ClusterSnapshot::new(policy.weights);
    for i in 0..nodes {
        let mut node = node(i, i as u64 % 40);
        if kind == "apart" {
            node.facts.labels.insert("zone".to_owned(), (i % 3).to_string());
        }
        snapshot.upsert(node);
    }
    let pods: Vec<PodRequest> = (0..pods).map(|i| pod(kind, i)).collect();
    let counted = pods.iter().filter_map(|pod| Some((pod.generation.clone()?, BTreeMap::new())));
    snapshot.set_placed(PlacedPods { generations: counted.collect(), ..PlacedPods::default() });
    let decisions = decide(&snapshot, NOW, &policy, &pods);
    assert!(decisions.iter().all(|decision| matches!(decision.outcome, Outcome::Place(_))));
}

fn pod(kind: &str, i: usize) -> PodRequest {
    let extra_cpu = if kind == "different" { i as u64 } else { 0 };
    let request = Resources { cpu_millis: 100 + extra_cpu, memory_bytes: 64 << 20, ..Resources::default() };
    let generation = (kind == "apart").then(|| Generation {
        service: ServiceName::new(format!("service{}", i / REPLICAS)).unwrap(),
        spec: SpecId::new("0123456789ab").unwrap(),
    });
    PodRequest {
        id: PodId::new(format!("pod{i}")).unwrap(),
        requirements: Requirements { request, ..Requirements::default() },
        generation,
        ordinal: None,
        target: None,
    }
}
