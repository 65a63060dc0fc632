//! The node, the pod and the cluster as profiles know them, and the units of their terms.

use model::node::{Resource, Resources};
use serde::{Deserialize, Serialize};

use super::workload::{Amounts, HUNDRED_POINTS, Workload};
use crate::candidate::Candidate;
use crate::score::{LoadScore, LoadTerm, TermScore};

/// A node and a pod, as profiles know them.
pub(crate) struct Profiled<'a> {
    pub(crate) node: &'a Candidate,
    /// Of the pod, without its slot.
    pub(crate) request: &'a Resources,
    pub(crate) cluster: &'a ClusterTotals,
    /// Pods of the same generation on the node.
    pub(crate) siblings: u64,
    /// See [`ClusterSnapshot::commit_use`](crate::ClusterSnapshot::commit_use).
    pub(crate) last_use: u64,
}

/// Of the nodes of a whole cluster, as [`Resources::to_array`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClusterMeasures {
    /// The largest capacity of a node.
    largest: Amounts,
    average: Amounts,
}

impl ClusterMeasures {
    pub(crate) fn of<'a>(nodes: impl Iterator<Item = &'a Candidate>) -> Self {
        let (mut largest, mut total, mut count) = (Amounts::default(), [0u128; 5], 0u128);
        for node in nodes {
            count += 1;
            for (at, amount) in node.capacity.to_array().into_iter().enumerate() {
                largest[at] = largest[at].max(amount);
                total[at] += u128::from(amount);
            }
        }
        Self { largest, average: total.map(|total| (total / count.max(1)) as u64) }
    }
}

/// The measures by which profiles compare nodes.
pub(crate) struct ClusterTotals {
    /// The largest capacity of a node.
    pub(super) largest: Resources,
    pub(super) workload: Workload,
    typical_pressure: LoadScore,
}

impl ClusterTotals {
    /// `needs` are requests of the cluster's services, with their numbers of pods.
    pub(crate) fn new(
        ClusterMeasures { largest, average }: ClusterMeasures,
        needs: &[(Resources, u64)],
        typical_pressure: LoadScore,
    ) -> Self {
        let workload = Workload::of_services(average, needs);
        Self { largest: Resources::from_array(largest), workload, typical_pressure }
    }
}

impl Profiled<'_> {
    pub(super) fn free_after(&self, resource: Resource) -> u64 {
        self.node.free(resource).saturating_sub(self.request.get(resource))
    }

    pub(super) fn used_after(&self, resource: Resource) -> u64 {
        self.node.used.get(resource).saturating_add(self.request.get(resource))
    }

    /// Of profiles that fill nodes: a full node that works is better than one that suffers.
    pub(super) fn pressure(&self) -> TermScore {
        let points = self.node.pressure.unwrap_or(self.cluster.typical_pressure);
        term(LoadTerm::Pressure, points as f64 / 1_000.0, points)
    }
}

pub(super) fn term(term: LoadTerm, value: f64, points: LoadScore) -> TermScore {
    TermScore { term, value, weight: 1, points }
}

/// With `value` in percent.
pub(super) fn percent_term(of: LoadTerm, points: LoadScore) -> TermScore {
    term(of, points as f64 / 1_000.0, points)
}

/// 100 points for the whole, at most. Nothing of a node without the resource is free, and all of it used.
pub(super) fn share_points(part: u64, whole: u64) -> LoadScore {
    let points = u128::from(part) * u128::from(HUNDRED_POINTS);
    points.checked_div(whole.into()).map_or(HUNDRED_POINTS, |points| (points as u64).min(HUNDRED_POINTS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_a_hundred_points() {
        for (part, whole, points) in [
            (0, 4, 0),
            (1, 4, 25_000),
            (4, 4, 100_000),
            (5, 4, 100_000),
            (0, 0, 100_000),
            (u64::MAX, u64::MAX, 100_000),
            (u64::MAX / 2, u64::MAX, 49_999),
        ] {
            assert_eq!(share_points(part, whole), points, "{part} of {whole}");
        }
    }
}
