//! Why pods are where they are, and why they are nowhere: the same filters and scores, in words.

use std::collections::BTreeMap;
use std::sync::Arc;

use common::RedisMillis;
use common::ids::NodeName;
use common::pod::{NodeRefusal, Refusal};
use serde::Serialize;

use super::PodRequest;
use super::candidate::Candidate;
use super::filter::{self, Moment, Need, Reason};
use super::policy::Policy;
use super::score::{self, Contribution, Load};
use super::snapshot::Snapshot;

/// What one node says to one pod.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeVerdict {
    /// The node.
    pub node: NodeName,
    /// Its load before it gets the pod, thousandths of a point: the sum of the terms. The fitting node with the
    /// least gets the pod.
    pub load: Load,
    /// What the load is made of.
    pub terms: Vec<Contribution>,
    /// Why it does not take the pod; empty when it does.
    pub refusals: Vec<Refused>,
}

impl NodeVerdict {
    /// Whether the node would take the pod.
    pub fn fits(&self) -> bool {
        self.refusals.is_empty()
    }
}

/// One reason of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// The reason.
    pub reason: Reason,
    /// The reason in a sentence with numbers.
    pub detail: String,
}

/// What every node says to a pod: those that fit first, best first; then those that do not, in the same order.
/// The first is where [`decide`](super::decide) would place it, were it alone.
pub fn explain(snapshot: &Snapshot, now: RedisMillis, policy: &Policy, pod: &PodRequest) -> Vec<NodeVerdict> {
    let need = Need::of(pod);
    let moment = Moment { now, dead_after: policy.dead_after };
    let mut verdicts: Vec<_> = snapshot
        .nodes()
        .map(|node| {
            let candidate = Candidate::of(node, &policy.weights);
            let refusals = filter::refusing(&candidate, &need, &moment)
                .map(|f| Refused { reason: f.reason, detail: (f.explain)(&candidate, &need, &moment, node) })
                .collect();
            NodeVerdict {
                node: node.name.clone(),
                load: candidate.load(&policy.weights),
                terms: score::explain(node, policy),
                refusals,
            }
        })
        .collect();
    // Stable, so that equal loads stay in the order of names.
    verdicts.sort_by_key(|verdict| (!verdict.fits(), verdict.load));
    verdicts
}

/// Why no node takes a pod: the reason most nodes give comes first. `current` gives a node's candidate as it is after
/// what the batch has placed, by slot.
pub(super) fn refusals<'a>(
    snapshot: &'a Snapshot,
    need: &Need,
    moment: &Moment,
    current: impl Fn(u32, &'a Candidate) -> &'a Candidate,
) -> Arc<[Refusal]> {
    if snapshot.is_empty() {
        return Arc::new([Refusal { reason: Reason::NoNodes.to_string(), count: 0, nodes: Vec::new() }]);
    }
    let mut by_reason: BTreeMap<Reason, Refusal> = BTreeMap::new();
    for (at, candidate, node) in snapshot.by_name() {
        let candidate = current(at, candidate);
        for filter in filter::refusing(candidate, need, moment) {
            let refusal = by_reason.entry(filter.reason).or_insert_with(|| Refusal {
                reason: filter.reason.to_string(),
                count: 0,
                nodes: Vec::new(),
            });
            refusal.count += 1;
            if refusal.nodes.len() < Refusal::MAX_EXAMPLES {
                let detail = (filter.explain)(candidate, need, moment, node);
                refusal.nodes.push(NodeRefusal { node: node.name.to_string(), detail });
            }
        }
    }
    let mut refusals: Vec<_> = by_reason.into_values().collect();
    refusals.sort_by_key(|refusal| std::cmp::Reverse(refusal.count));
    refusals.into()
}
