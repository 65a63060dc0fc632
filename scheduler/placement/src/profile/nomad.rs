//! `nomad`: its bin packing, after Google's BestFit v3. The score of a node is 20 − 10^(free share of CPU)
//! − 10^(free share of memory), and a node that the pod fills exactly has the highest one, 18.

use model::node::Resource;

use super::power::{ONE, Powers};
use super::profiled::{Profiled, percent_term};
use super::workload::HUNDRED_POINTS;
use crate::score::{LoadScore, LoadTerm, TermScore};

const TEN: Powers = Powers::of_root(100, 1);
/// Of one resource, from a full node to an empty one.
const RANGE: u64 = 9 * ONE;

/// The distance from 18, as a share of 100 points.
pub(super) fn terms(of: &Profiled<'_>) -> [TermScore; 2] {
    let lacks = |resource: Resource| -> LoadScore {
        let power = TEN.at(of.free_after(resource), of.node.capacity.get(resource));
        let points = u128::from(power - ONE) * u128::from(HUNDRED_POINTS / 2) / u128::from(RANGE);
        points as u64
    };
    [
        percent_term(LoadTerm::FreeCpu, lacks(Resource::Cpu)),
        percent_term(LoadTerm::FreeMemory, lacks(Resource::Memory)),
    ]
}

#[cfg(test)]
mod tests {
    use model::spec::PlacementProfile;

    use super::super::testing::{points, request};
    use crate::testing::node;

    #[test]
    fn the_fullest_node_has_the_fewest_points() {
        // 10^0.5 is 3.1623, of which 2.1623 are 24.03 % of 9.
        for (used_cpu, used_memory, expected) in
            [(0, 0, [50_000, 50_000]), (50, 100, [12_012, 0]), (100, 100, [0, 0]), (99, 0, [129, 50_000])]
        {
            let node = node("a").cpu(used_cpu, 100).memory(used_memory, 100);
            let found = points(PlacementProfile::Nomad, node, &[], request(0, 0));
            let expected = [("free_cpu", expected[0]), ("free_memory", expected[1])];
            assert_eq!(found, expected, "{used_cpu} {used_memory}");
        }
        let asked = points(PlacementProfile::Nomad, node("a").cpu(0, 100), &[], request(50, 0));
        assert_eq!(asked[0], ("free_cpu", 12_012));
        let without = points(PlacementProfile::Nomad, node("a").cpu(0, 0), &[], request(0, 0));
        assert_eq!(without[0], ("free_cpu", 50_000), "a node that reports no CPU is not a full one");
    }
}
