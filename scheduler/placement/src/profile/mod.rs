//! The profiles: each scores a node for a pod by a rule of its own, lower is better. `default` is the load of
//! [`score`](crate::score), which the shared orders know; the others are computed for each node.
//!
//! To add one, write `profile/<name>.rs` with the terms of its score, and name it in [`PlacementProfile`] and
//! here. Terms are in thousandths of a point, with 100 points from the best node to the worst where there is
//! a worst one, so that preferences of a service weigh about the same in all of them. Whole numbers have the
//! same result everywhere.
//!
//! Tests: beside the code, tests

mod epvm;
mod fragmentation;
mod greedy;
mod kubernetes;
mod nomad;
mod pack;
mod power;
mod profiled;
mod round_robin;
mod spread;
mod workload;

use model::spec::PlacementProfile;

use crate::filter::NodeFilter;
use crate::score::{LoadScore, TermScore};

pub use fragmentation::tie_points;
pub use pack::left_points;
pub(crate) use profiled::{ClusterMeasures, ClusterTotals, Profiled};
pub use workload::{NeededUnits, Workload};

pub(crate) fn load(profile: PlacementProfile, of: &Profiled<'_>) -> LoadScore {
    terms(profile, of, |terms| terms.iter().map(|term| term.points).fold(0, LoadScore::saturating_add))
}

pub(crate) fn explain(profile: PlacementProfile, of: &Profiled<'_>) -> Vec<TermScore> {
    terms(profile, of, <[TermScore]>::to_vec)
}

/// `default` has none here.
fn terms<R>(profile: PlacementProfile, of: &Profiled<'_>, with: impl FnOnce(&[TermScore]) -> R) -> R {
    match profile {
        PlacementProfile::Default => with(&[]),
        PlacementProfile::Pack => with(&pack::terms(of)),
        PlacementProfile::Spread => with(&spread::terms(of)),
        PlacementProfile::Kubernetes => with(&kubernetes::terms(of)),
        PlacementProfile::Nomad => with(&nomad::terms(of)),
        PlacementProfile::Epvm => with(&epvm::terms(of)),
        PlacementProfile::Greedy => with(&greedy::terms(of)),
        PlacementProfile::RoundRobin => with(&round_robin::terms(of)),
        PlacementProfile::Fragmentation => with(&fragmentation::terms(of)),
    }
}

/// Beside those of all pods.
pub(crate) fn filters(profile: PlacementProfile) -> &'static [NodeFilter] {
    match profile {
        PlacementProfile::Greedy => &[greedy::CPU_IS_KNOWN],
        _ => &[],
    }
}

#[cfg(test)]
mod testing {
    use model::node::Resources;

    use super::*;
    use crate::candidate::Candidate;
    use crate::policy::Weights;
    use crate::testing::NodeBuilder;

    /// The points of each term for the node in a cluster with `others`.
    pub(super) fn points(
        profile: PlacementProfile,
        node: NodeBuilder,
        others: &[NodeBuilder],
        request: Resources,
    ) -> Vec<(&'static str, LoadScore)> {
        points_with(profile, node, others, request, &[], (0, 0))
    }

    pub(super) fn points_with(
        profile: PlacementProfile,
        node: NodeBuilder,
        others: &[NodeBuilder],
        request: Resources,
        needs: &[(Resources, u64)],
        (siblings, last_use): (u64, u64),
    ) -> Vec<(&'static str, LoadScore)> {
        let candidate = |node: NodeBuilder| Candidate::new(&node.build(), &Weights::default());
        let nodes: Vec<_> = [node].into_iter().chain(others.iter().cloned()).map(candidate).collect();
        let cluster = ClusterTotals::new(ClusterMeasures::of(nodes.iter()), needs, 0);
        let profiled = Profiled { node: &nodes[0], request: &request, cluster: &cluster, siblings, last_use };
        explain(profile, &profiled).iter().map(|term| (term.term.as_str(), term.points)).collect()
    }

    pub(super) fn request(cpu_millis: u64, memory_bytes: u64) -> Resources {
        Resources { cpu_millis, memory_bytes, ..Resources::default() }
    }
}
