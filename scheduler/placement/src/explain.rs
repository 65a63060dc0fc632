//! Explains a placement or its refusal, with the same filters and scores that decide.

use std::cmp::Reverse;
use std::sync::Arc;

use model::RedisMillis;
use model::ids::NodeName;
use model::node::Node;
use model::pod::{NodeRefusal, Refusal};
use serde::Serialize;

use crate::candidate::Candidate;
use crate::filter::{self, EvalContext, NodeFilter, Reason};
use crate::policy::PlacementPolicy;
use crate::requirements::{PodRequest, Requirements};
use crate::score::{self, LoadScore, TermScore};
use crate::snapshot::ClusterSnapshot;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeEvaluation {
    pub node: NodeName,
    /// Without the pod, in thousandths of a point.
    pub load: LoadScore,
    pub terms: Vec<TermScore>,
    /// Empty if the node can run the pod.
    pub refusals: Vec<FilterRefusal>,
}

impl NodeEvaluation {
    pub fn is_feasible(&self) -> bool {
        self.refusals.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FilterRefusal {
    pub reason: Reason,
    pub detail: String,
}

/// Feasible nodes first, by load and then by name: [`decide`](crate::decide) would take the first one.
pub fn explain(
    snapshot: &ClusterSnapshot,
    now: RedisMillis,
    policy: &PlacementPolicy,
    pod: &PodRequest,
) -> Vec<NodeEvaluation> {
    let context = EvalContext { now, dead_after: policy.dead_after };
    let typical_pressure = snapshot.ordered_by(policy.weights).typical_pressure();
    let mut evaluations: Vec<_> = snapshot
        .nodes()
        .map(|node| evaluate(node, policy, typical_pressure, &pod.requirements, &context))
        .collect();
    // Stable: equal loads stay in the order of names.
    evaluations.sort_by_key(|evaluation| (!evaluation.is_feasible(), evaluation.load));
    evaluations
}

fn evaluate(
    node: &Node,
    policy: &PlacementPolicy,
    typical_pressure: LoadScore,
    requirements: &Requirements,
    context: &EvalContext,
) -> NodeEvaluation {
    let candidate = Candidate::new(node, &policy.weights);
    let refusals = filter::failed(&candidate, requirements, context)
        .map(|filter| FilterRefusal {
            reason: filter.reason,
            detail: (filter.explain)(&candidate, requirements, context, node),
        })
        .collect();
    NodeEvaluation {
        node: node.name.clone(),
        load: candidate.load(&policy.weights, typical_pressure),
        terms: score::explain(node, policy, typical_pressure),
        refusals,
    }
}

/// `current` returns the candidate with the batch's placements.
pub(crate) fn refusals<'a>(
    snapshot: &'a ClusterSnapshot,
    requirements: &Requirements,
    context: &EvalContext,
    current: impl Fn(u32, &'a Candidate) -> &'a Candidate,
) -> Arc<[Refusal]> {
    if snapshot.is_empty() {
        return Arc::new([no_refusals_yet(Reason::NO_NODES)]);
    }
    let mut by_filter: Vec<(&NodeFilter, Refusal)> =
        filter::all().map(|filter| (filter, no_refusals_yet(filter.reason))).collect();
    for (index, candidate, node) in snapshot.by_name() {
        let candidate = current(index, candidate);
        for (filter, refusal) in &mut by_filter {
            if (filter.is_feasible)(candidate, requirements, context) {
                continue;
            }
            refusal.count += 1;
            if refusal.nodes.len() < Refusal::MAX_EXAMPLES {
                let detail = (filter.explain)(candidate, requirements, context, node);
                refusal.nodes.push(NodeRefusal { node: node.name.to_string(), detail });
            }
        }
    }
    let mut refusals: Vec<Refusal> =
        by_filter.into_iter().map(|(_, refusal)| refusal).filter(|refusal| refusal.count > 0).collect();
    // Stable: equally frequent reasons stay in the order of the filters.
    refusals.sort_by_key(|refusal| Reverse(refusal.count));
    refusals.into()
}

fn no_refusals_yet(reason: Reason) -> Refusal {
    Refusal { reason: reason.to_string(), count: 0, nodes: Vec::new() }
}
