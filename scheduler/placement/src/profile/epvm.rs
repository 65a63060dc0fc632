//! `epvm`: the marginal cost of the enhanced parallel virtual machine. A resource costs L to the power of its
//! used share, and a pod goes where it adds the least. Memory counts once: as requested, and not as in use as
//! well.

use model::node::Resource;

use super::power::{ONE, Powers};
use super::profiled::{Profiled, percent_term};
use super::workload::HUNDRED_POINTS;
use crate::score::{LoadScore, LoadTerm, TermScore};

/// Lieb's square ice constant, (4/3)^(3/2) = 1.5396.
const LIEB: Powers = Powers::of_root(64, 27);

pub(super) fn terms(of: &Profiled<'_>) -> [TermScore; 3] {
    let (used, has) = (&of.node.used, &of.node.capacity);
    let of_resource =
        |resource: Resource| added_cost(used.get(resource), of.used_after(resource), has.get(resource));
    [
        percent_term(LoadTerm::CpuCost, of_resource(Resource::Cpu)),
        percent_term(LoadTerm::MemoryCost, of_resource(Resource::Memory)),
        percent_term(LoadTerm::PodCost, added_cost(used.pods, used.pods.saturating_add(1), has.pods)),
    ]
}

fn added_cost(before: u64, after: u64, whole: u64) -> LoadScore {
    let added = LIEB.at(after, whole) - LIEB.at(before, whole);
    (u128::from(added) * u128::from(HUNDRED_POINTS) / u128::from(ONE)) as u64
}

#[cfg(test)]
mod tests {
    use model::spec::PlacementProfile;

    use super::super::testing::{points, request};
    use crate::testing::node;

    #[test]
    fn the_same_pod_costs_more_on_a_fuller_node() {
        // 1.5396^0.25 = 1.1139, ^0.5 = 1.2408, ^0.75 = 1.3821.
        for (used, has, asked, expected) in [
            (0, 100, 0, 0),
            (0, 100, 50, 24_080),
            (50, 100, 50, 29_879),
            (50, 100, 25, 14_134),
            (0, 200, 50, 11_391),
            (0, 0, 0, 0),
        ] {
            let node = node("a").cpu(used, has).memory(used, has).pods(0, 1);
            let found = points(PlacementProfile::Epvm, node, &[], request(asked, asked));
            let expected = [("cpu_cost", expected), ("memory_cost", expected), ("pod_cost", 53_960)];
            assert_eq!(found, expected, "{used} + {asked} of {has}");
        }
    }
}
