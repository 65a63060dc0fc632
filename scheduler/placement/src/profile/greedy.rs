//! `greedy`: the node with the most free CPU. A node that reports none is refused: it is unknown how busy it
//! is, and nothing is the best of all scores.

use model::node::Resource;

use super::profiled::{Profiled, percent_term, share_points, term};
use crate::filter::{NodeFilter, Reason};
use crate::score::{LoadTerm, TermScore};

pub(super) const CPU_IS_KNOWN: NodeFilter = NodeFilter {
    reason: Reason::CPU_UNKNOWN,
    is_feasible: |candidate, _, _| candidate.capacity.cpu_millis > 0,
    explain: |_, _, _, _| "reports no CPU, by which the profile greedy chooses".to_owned(),
};

pub(super) fn terms(of: &Profiled<'_>) -> [TermScore; 2] {
    let most = of.cluster.largest.cpu_millis;
    let missing = most.saturating_sub(of.node.free(Resource::Cpu));
    [
        percent_term(LoadTerm::UsedCpu, share_points(missing, most)),
        // Among nodes with the same: pods without requests change nothing else.
        term(LoadTerm::PodCount, of.node.used.pods as f64, of.node.used.pods),
    ]
}

#[cfg(test)]
mod tests {
    use model::spec::PlacementProfile;

    use super::super::testing::{points, request};
    use crate::testing::node;

    #[test]
    fn the_most_free_cores_have_the_fewest_points() {
        for (used, has, pods, expected) in
            [(0, 8_000, 0, [0, 0]), (2_000, 8_000, 3, [25_000, 3]), (0, 4_000, 0, [50_000, 0])]
        {
            let judged = node("a").cpu(used, has).pods(pods, 10);
            let largest = [node("b").cpu(0, 8_000)];
            let found = points(PlacementProfile::Greedy, judged, &largest, request(100, 0));
            assert_eq!(found, [("used_cpu", expected[0]), ("pod_count", expected[1])], "{used} of {has}");
        }
    }
}
