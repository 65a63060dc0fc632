//! `fragmentation`: the node on which the placement takes the least room that other pods of the cluster could
//! use. Room that fits none of them is stranded, and costs nothing. The idea is that of fragmentation
//! gradient descent (Weng and others, ATC 2023), with all resources in place of GPUs.

use model::node::Resources;

use super::pack;
use super::profiled::{Profiled, percent_term};
use super::workload::Amounts;
use crate::score::{LoadScore, LoadTerm, TermScore};

pub(super) fn terms(of: &Profiled<'_>) -> [TermScore; 3] {
    let (has, used) = (of.node.capacity.to_array(), of.node.used.to_array());
    let asked = Resources { pods: 1, ..*of.request }.to_array();
    let before: Amounts = std::array::from_fn(|at| has[at].saturating_sub(used[at]));
    let after = std::array::from_fn(|at| before[at].saturating_sub(asked[at]));
    let workload = &of.cluster.workload;
    let lost = workload.usable_amounts(before).saturating_sub(workload.usable_amounts(after));
    let [cpu, memory, disk, pressure] = pack::terms(of);
    let left = tie_points(cpu.points + memory.points + disk.points);
    [percent_term(LoadTerm::LostRoom, lost), percent_term(LoadTerm::FreeRoom, left), pressure]
}

/// Added to the lost room: of nodes that lose about the same, the one on which the least is left is better.
/// `left` are the points of `pack`.
pub fn tie_points(left: LoadScore) -> LoadScore {
    left / 100
}

#[cfg(test)]
mod tests {
    use model::spec::PlacementProfile;

    use super::super::testing::{points_with, request};
    use crate::testing::node;

    #[test]
    fn a_fuller_node_is_better_among_those_that_lose_the_same() {
        let free =
            |node| points_with(PlacementProfile::Fragmentation, node, &[], request(0, 0), &[], (0, 0))[1];
        assert_eq!(free(node("a")), ("free_room", 1_000));
        assert_eq!(free(node("a").cpu(4_000, 4_000)), ("free_room", 500));
    }

    #[test]
    fn stranded_room_costs_nothing() {
        let needs = [(request(1_000, 1 << 30), 10)];
        let lost = |node| {
            points_with(PlacementProfile::Fragmentation, node, &[], request(100, 0), &needs, (0, 0))[0].1
        };
        let stranded = node("a").memory(8 << 30, 8 << 30);
        let last = node("a").cpu(3_000, 4_000);
        let whole = node("a");
        assert_eq!(lost(stranded), 0, "no memory is left for the processor");
        assert!(lost(last.clone()) > lost(whole), "what is left fits no other pod: {}", lost(last));
    }
}
