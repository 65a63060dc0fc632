//! `round-robin`: the node whose last use is longest ago. A node that cannot run the pod is passed over, and
//! keeps its place.

use super::profiled::{Profiled, term};
use crate::score::{LoadScore, LoadTerm, TermScore};

const POINTS_PER_USE: LoadScore = 1_000;

pub(super) fn terms(of: &Profiled<'_>) -> [TermScore; 1] {
    [term(LoadTerm::LastUse, of.last_use as f64, of.last_use.saturating_mul(POINTS_PER_USE))]
}

#[cfg(test)]
mod tests {
    use model::node::Resources;
    use model::spec::PlacementProfile;

    use super::super::testing::points_with;
    use super::*;
    use crate::testing::node;

    #[test]
    fn each_later_use_is_a_point() {
        for use_count in [0, 1, 7] {
            let no_request = Resources::default();
            let found =
                points_with(PlacementProfile::RoundRobin, node("a"), &[], no_request, &[], (0, use_count));
            assert_eq!(found, [("last_use", use_count * POINTS_PER_USE)]);
        }
    }
}
