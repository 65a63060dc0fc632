//! `spread`: Swarm's rule. The node with the fewest pods of the same generation, then with the fewest pods.

use super::profiled::{Profiled, term};
use crate::score::{LoadScore, LoadTerm, TermScore};

/// As in `default`.
const POINTS_PER_POD: LoadScore = 100;
/// One more counts more than all pods that a node may have.
const POINTS_PER_OWN_POD: LoadScore = 1_000_000 * POINTS_PER_POD;

pub(super) fn terms(of: &Profiled<'_>) -> [TermScore; 2] {
    let (own, pods) = (of.siblings, of.node.used.pods);
    [
        term(LoadTerm::NodeSiblings, own as f64, own.saturating_mul(POINTS_PER_OWN_POD)),
        term(LoadTerm::PodCount, pods as f64, pods.saturating_mul(POINTS_PER_POD)),
    ]
}

#[cfg(test)]
mod tests {
    use model::node::Resources;
    use model::spec::PlacementProfile;

    use super::super::testing::points_with;
    use super::*;
    use crate::testing::node;

    #[test]
    fn own_pods_count_before_all_others() {
        let load = |own, pods| -> LoadScore {
            let node = node("a").pods(pods, 1_000_000);
            let no_request = Resources::default();
            let terms = points_with(PlacementProfile::Spread, node, &[], no_request, &[], (own, 0));
            terms.iter().map(|(_, points)| points).sum()
        };
        let ascending = [(0, 0), (0, 1), (0, 999_999), (1, 0), (1, 7), (2, 0)];
        assert!(ascending.map(|(own, pods)| load(own, pods)).is_sorted_by(|a, b| a < b));
    }
}
