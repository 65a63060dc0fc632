//! `pack`: the node on which the least is left. It keeps other nodes empty for large pods, or for removal.

use model::node::Resource;

use super::profiled::{Profiled, percent_term, share_points};
use crate::score::{LoadScore, LoadTerm, TermScore};

/// Disk counts for pods that need it.
pub(super) fn terms(of: &Profiled<'_>) -> [TermScore; 4] {
    let disk = u64::from(of.request.disk_bytes > 0);
    let left = |resource: Resource| left_points(of.free_after(resource), of.cluster.largest.get(resource));
    let part = |term, resource| percent_term(term, left(resource) / (2 + disk));
    [
        part(LoadTerm::FreeCpu, Resource::Cpu),
        part(LoadTerm::FreeMemory, Resource::Memory),
        percent_term(LoadTerm::FreeDisk, disk * left(Resource::Disk) / 3),
        of.pressure(),
    ]
}

/// Points for one resource of a node, of which `left` would remain. `largest` is the most that a node of the
/// cluster has of it.
pub fn left_points(left: u64, largest: u64) -> LoadScore {
    if largest == 0 { 0 } else { share_points(left, largest) }
}

#[cfg(test)]
mod tests {
    use model::node::Resources;
    use model::spec::PlacementProfile;

    use super::super::testing::{points, request};
    use crate::testing::node;

    #[test]
    fn the_node_with_the_least_left_has_the_fewest_points() {
        let sized =
            |used_cpu, cpu, used_memory, memory| node("a").cpu(used_cpu, cpu).memory(used_memory, memory);
        let large = [sized(0, 4_000, 0, 1_000)];
        for (node, cpu, memory, expected) in [
            (sized(0, 4_000, 0, 1_000), 0, 0, [50_000, 50_000]),
            (sized(0, 4_000, 0, 1_000), 1_000, 500, [37_500, 25_000]),
            (sized(3_000, 4_000, 500, 1_000), 1_000, 500, [0, 0]),
            (sized(0, 1_000, 0, 500), 1_000, 0, [0, 25_000]),
            (sized(0, 0, 0, 0), 0, 0, [0, 0]),
        ] {
            let found = points(PlacementProfile::Pack, node.clone(), &large, request(cpu, memory));
            let expected = [("free_cpu", expected[0]), ("free_memory", expected[1])];
            assert_eq!(found[..2], expected, "{node:?}");
            assert_eq!(found[2..], [("free_disk", 0), ("pressure", 0)]);
        }
    }

    #[test]
    fn disk_counts_for_a_pod_that_needs_it() {
        let needs_disk = Resources { disk_bytes: 50 << 30, ..Resources::default() };
        let found = points(PlacementProfile::Pack, node("a"), &[], needs_disk);
        assert_eq!(found[..3], [("free_cpu", 33_333), ("free_memory", 33_333), ("free_disk", 16_666)]);
    }

    #[test]
    fn pressure_that_hurts_counts_more_than_an_empty_node() {
        let pressed = node("a").cpu(4_000, 4_000).psi(|psi| psi.memory_full = 60.0);
        let found = points(PlacementProfile::Pack, pressed, &[], Resources::default());
        assert_eq!(found[3], ("pressure", 180_000));
    }
}
