//! `kubernetes`: its NodeResourcesFit (least allocated) and NodeResourcesBalancedAllocation, weighted alike.

use model::node::Resource;

use super::profiled::{Profiled, percent_term, share_points, term};
use crate::score::{LoadTerm, TermScore};

/// Kubernetes counts this for a container that asks for nothing, so that such pods are spread as well.
const LEAST_CPU_MILLIS: u64 = 100;
const LEAST_MEMORY_BYTES: u64 = 200 << 20;

pub(super) fn terms(of: &Profiled<'_>) -> [TermScore; 4] {
    // A node does not tell which of its pods asked for nothing: together they count for this at least.
    let pods = of.node.used.pods.saturating_add(1);
    let allocated = |resource: Resource, least: u64| {
        let amount = of.used_after(resource).max(pods.saturating_mul(least));
        share_points(amount, of.node.capacity.get(resource)) / 2
    };
    let requested = |resource| share_points(of.used_after(resource), of.node.capacity.get(resource));
    // The standard deviation of two shares.
    let imbalance = requested(Resource::Cpu).abs_diff(requested(Resource::Memory)) / 2;
    [
        percent_term(LoadTerm::UsedCpu, allocated(Resource::Cpu, LEAST_CPU_MILLIS)),
        percent_term(LoadTerm::UsedMemory, allocated(Resource::Memory, LEAST_MEMORY_BYTES)),
        percent_term(LoadTerm::Imbalance, imbalance),
        // Among nodes that are equally full.
        term(LoadTerm::PodCount, of.node.used.pods as f64, of.node.used.pods),
    ]
}

#[cfg(test)]
mod tests {
    use model::spec::PlacementProfile;

    use super::super::testing::{points, request};
    use crate::testing::node;

    const GIB: u64 = 1 << 30;

    #[test]
    fn empty_and_balanced_nodes_have_the_fewest_points() {
        // A share of 200 MiB in 8 GiB is 2.441 %.
        for (node, cpu, memory, expected) in [
            (node("a"), 0, 0, [1_250, 1_220, 0, 0]),
            (node("a"), 1_000, 2 * GIB, [12_500, 12_500, 0, 0]),
            (node("a"), 1_000, 0, [12_500, 1_220, 12_500, 0]),
            (node("a").cpu(3_000, 4_000).memory(6 * GIB, 8 * GIB), 1_000, 2 * GIB, [50_000, 50_000, 0, 0]),
            (node("a").pods(9, 110), 0, 0, [12_500, 12_207, 0, 9]),
            (node("a").cpu(0, 0), 0, 0, [50_000, 1_220, 50_000, 0]),
        ] {
            let found = points(PlacementProfile::Kubernetes, node.clone(), &[], request(cpu, memory));
            let terms = ["used_cpu", "used_memory", "imbalance", "pod_count"];
            assert_eq!(found, terms.into_iter().zip(expected).collect::<Vec<_>>(), "{node:?}");
        }
    }
}
