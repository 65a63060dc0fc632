//! Measures placement without Redis: pods per second by size of the cluster and kind of batch.
//!
//! `cargo bench -p kubeleet-placement --bench decide -- --quick`

#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "a bench fails by panicking, and its macros make public items"
)]

mod fixture;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fixture::NOW;
use kubeleet_placement::{ClusterSnapshot, Outcome, PlacementPolicy, PodRequest, Requirements, decide};
use model::ids::{Incarnation, PodId};
use model::node::{Node, Resources};
use model::spec::PlacementProfile;

const PODS: usize = 30_000;

/// Returns node `i`; a third of the nodes already have pods.
fn node(i: usize) -> Node {
    let busy = if i.is_multiple_of(3) { i as u64 % 40 } else { 0 };
    Node { incarnation: Some(Incarnation::random()), ..fixture::node(i, busy) }
}

fn cluster(nodes: usize) -> ClusterSnapshot {
    let mut snapshot = ClusterSnapshot::new(PlacementPolicy::default().weights);
    (0..nodes).for_each(|i| snapshot.upsert(node(i)));
    snapshot
}

fn pods(count: usize, requirements: impl Fn(u64) -> Requirements) -> Vec<PodRequest> {
    let pod = |i| PodRequest {
        id: PodId::random(),
        requirements: requirements(i),
        generation: None,
        ordinal: None,
        target: None,
    };
    (0..count as u64).map(pod).collect()
}

fn requirements(cpu_millis: u64, memory_bytes: u64) -> Requirements {
    let request = Resources { cpu_millis, memory_bytes, ..Resources::default() };
    Requirements { request, ..Requirements::default() }
}

fn bench(criterion: &mut Criterion) {
    let policy = PlacementPolicy::default();
    let same = |_| requirements(100, 64 << 20);
    let different = |i| requirements(100 + i, 64 << 20);
    let packed = |_| Requirements { profile: PlacementProfile::Pack, ..requirements(100, 64 << 20) };
    let too_large = |_| requirements(u64::MAX, 0);
    let batches = [
        ("same", pods(PODS, same)),
        ("different", pods(PODS, different)),
        ("packed", pods(PODS, packed)),
        ("unschedulable", pods(PODS, too_large)),
        ("unschedulable_different", pods(300, |i| requirements(u64::MAX - i, 0))),
        ("hundred", pods(100, same)),
        ("one", pods(1, same)),
    ];
    for (kind, pods) in &batches {
        let mut group = criterion.benchmark_group(*kind);
        group.throughput(Throughput::Elements(pods.len() as u64));
        for nodes in [100, 1_000, 10_000] {
            let snapshot = cluster(nodes);
            let placed = decide(&snapshot, NOW, &policy, pods);
            let fits = placed.iter().all(|decision| matches!(decision.outcome, Outcome::Place(_)));
            assert_eq!(fits, !kind.starts_with("unschedulable"));
            group.bench_function(BenchmarkId::from_parameter(nodes), |bencher| {
                bencher.iter(|| decide(black_box(&snapshot), NOW, &policy, black_box(pods)));
            });
        }
        group.finish();
    }

    let mut group = criterion.benchmark_group("heartbeat");
    for nodes in [100, 1_000, 10_000] {
        let mut snapshot = cluster(nodes);
        let beats: Vec<_> = (0..nodes).map(|i| node(i + 1)).map(|n| Node { psi: None, ..n }).collect();
        let mut next = (0..nodes).cycle();
        group.bench_function(BenchmarkId::from_parameter(nodes), |bencher| {
            bencher.iter(|| snapshot.upsert(beats[next.next().unwrap()].clone()));
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
