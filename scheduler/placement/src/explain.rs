//! Explains a placement or its refusal, with the same filters and scores that decide.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

use model::RedisMillis;
use model::ids::NodeName;
use model::node::Node;
use model::pod::{NodeRefusal, Refusal};
use model::spec::PlacementProfile;

use crate::candidate::Candidate;
use crate::filter::{self, EvalContext, NodeFilter, Reason};
use crate::ordinal::BatchOrdinals;
use crate::placed::PodsByNode;
use crate::policy::{PlacementPolicy, Weights};
use crate::requirements::{PodRequest, Requirements, Target};
use crate::rules::RuleState;
use crate::scan::ProfileScan;
use crate::score::{self, LoadScore, LoadTerm, TermScore};
use crate::snapshot::ClusterSnapshot;

#[derive(Debug, Clone, PartialEq)]
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

#[derive(Debug, Clone, PartialEq, Eq)]
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
    let snapshot = &*snapshot.ordered_by(policy.weights);
    let evaluator = Evaluator::new(snapshot, now, policy, pod);
    let mut evaluations: Vec<_> = snapshot.by_name().map(|node| evaluator.evaluate(node)).collect();
    // Stable: equal loads stay in the order of names.
    evaluations.sort_by_key(|evaluation| (!evaluation.is_feasible(), evaluation.load));
    evaluations
}

/// Judges nodes for one pod.
pub(crate) struct Evaluator<'a> {
    snapshot: &'a ClusterSnapshot,
    policy: &'a PlacementPolicy,
    target: Option<&'a Target>,
    context: EvalContext,
    typical_pressure: LoadScore,
    placed: Option<&'a PodsByNode>,
    requirements: Cow<'a, Requirements>,
    rules: Option<RuleState>,
    scan: Option<ProfileScan<'a>>,
}

impl<'a> Evaluator<'a> {
    /// The snapshot has the weights of the policy.
    pub(crate) fn new(
        snapshot: &'a ClusterSnapshot,
        now: RedisMillis,
        policy: &'a PlacementPolicy,
        pod: &'a PodRequest,
    ) -> Self {
        let context = EvalContext { now, dead_after: policy.dead_after };
        let typical_pressure = snapshot.typical_pressure();
        let generation = pod.generation.as_ref();
        let placed = generation.and_then(|generation| snapshot.placed().generations.get(generation));
        let requirements = BatchOrdinals::default().requirements(pod, snapshot, &context);
        let rules = RuleState::new(snapshot, &requirements, generation, &context);
        let is_scanned = requirements.profile != PlacementProfile::Default;
        let scan = is_scanned.then(|| ProfileScan::new(snapshot, typical_pressure));
        let target = pod.target.as_ref();
        Self { snapshot, policy, target, context, typical_pressure, placed, requirements, rules, scan }
    }

    pub(crate) fn evaluate(&self, (index, candidate, node): (u32, &Candidate, &Node)) -> NodeEvaluation {
        let Self { snapshot, policy, placed, requirements, .. } = self;
        let mut terms = match &self.scan {
            Some(scan) => {
                let siblings = placed.and_then(|placed| placed.get(&node.name)).copied().unwrap_or(0);
                scan.explain(requirements.profile, (index, candidate), &requirements.request, siblings)
            }
            None => {
                let mut terms = score::explain(node, policy, self.typical_pressure);
                let placed = placed.map(|placed| sibling_terms(snapshot, placed, node, &policy.weights));
                terms.extend(placed.into_iter().flatten());
                terms
            }
        };
        let mut refusals = explained_refusals(node, policy, requirements, &self.context);
        if let Some(rules) = &self.rules {
            terms.extend(rules.terms(index, candidate, &policy.weights));
            let by_rules = rules.refusals(index).into_iter();
            refusals.extend(by_rules.map(|(reason, detail)| FilterRefusal { reason, detail }));
        }
        let only = match self.target {
            Some(Target::Only(node)) => Some(Some(node)),
            Some(Target::Nowhere) => Some(None),
            Some(Target::Planned(_)) | None => None,
        };
        if let Some(only) = only.filter(|only| *only != Some(&node.name)) {
            refusals.push(FilterRefusal { reason: Reason::OTHER_NODE, detail: other_node(only) });
        }
        let load = terms.iter().map(|term| term.points).sum();
        NodeEvaluation { node: node.name.clone(), load, terms, refusals }
    }
}

fn sibling_terms(
    snapshot: &ClusterSnapshot,
    placed: &PodsByNode,
    node: &Node,
    weights: &Weights,
) -> impl Iterator<Item = TermScore> {
    let is_in_zone = |name: &NodeName| snapshot.get(name).is_some_and(|other| other.zone() == node.zone());
    let of_nodes = || placed.iter().filter(|(name, _)| is_in_zone(name)).map(|(_, count)| count).sum();
    let whole = snapshot.whole().and_then(|whole| whole.by_zone.get(node.zone()).copied());
    let in_zone = whole.unwrap_or_else(of_nodes);
    let on_node = placed.get(&node.name).copied().unwrap_or(0);
    let counted = [
        (LoadTerm::NodeSiblings, Some(on_node)),
        (LoadTerm::ZoneSiblings, snapshot.has_zones().then_some(in_zone)),
    ];
    counted.into_iter().filter_map(|(term, count)| Some(score::explain_siblings(term, count?, weights)))
}

fn explained_refusals(
    node: &Node,
    policy: &PlacementPolicy,
    requirements: &Requirements,
    context: &EvalContext,
) -> Vec<FilterRefusal> {
    let candidate = Candidate::new(node, &policy.weights);
    let explained = |filter: &NodeFilter| FilterRefusal {
        reason: filter.reason,
        detail: (filter.explain)(&candidate, requirements, context, node),
    };
    filter::failed(&candidate, requirements, context).map(explained).collect()
}

/// By `only` this node, or by all. `current` returns the candidate with the batch's placements.
pub(crate) fn refusals<'a>(
    snapshot: &'a ClusterSnapshot,
    requirements: &Requirements,
    rules: Option<&RuleState>,
    context: &EvalContext,
    only: Option<u32>,
    current: impl Fn(u32, &'a Candidate) -> &'a Candidate,
) -> Arc<[Refusal]> {
    if snapshot.is_empty() {
        return Arc::new([no_refusals_yet(Reason::NO_NODES)]);
    }
    let filters = filter::all(requirements.profile);
    let mut by_filter: Vec<(&NodeFilter, Refusal)> =
        filters.map(|filter| (filter, no_refusals_yet(filter.reason))).collect();
    let mut by_rule =
        [Reason::MAX_PER_NODE, Reason::SPREAD, Reason::AFFINITY, Reason::ANTI_AFFINITY].map(no_refusals_yet);
    let judged = snapshot.by_name().filter(|(index, ..)| only.is_none_or(|only| only == *index));
    for (index, candidate, node) in judged {
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
        let counted = rules.map(|rules| rules.refusals(index)).unwrap_or_default();
        for refusal in &mut by_rule {
            let detail = counted.iter().find(|(reason, _)| reason.as_str() == refusal.reason);
            let Some((_, detail)) = detail.cloned() else { continue };
            refusal.count += 1;
            if refusal.nodes.len() < Refusal::MAX_EXAMPLES {
                refusal.nodes.push(NodeRefusal { node: node.name.to_string(), detail });
            }
        }
    }
    let all = by_filter.into_iter().map(|(_, refusal)| refusal).chain(by_rule);
    let mut refusals: Vec<Refusal> = all.filter(|refusal| refusal.count > 0).collect();
    // Stable: equally frequent reasons stay in the order of the filters.
    refusals.sort_by_key(|refusal| Reverse(refusal.count));
    refusals.into()
}

/// Those that are not asked for the pod of a global service on `node`; `None` if it goes nowhere.
pub(crate) fn other_nodes(snapshot: &ClusterSnapshot, node: Option<&NodeName>) -> Option<Refusal> {
    let names = snapshot.by_name().map(|(_, _, other)| &other.name).filter(|other| Some(*other) != node);
    let mut refusal = no_refusals_yet(Reason::OTHER_NODE);
    for name in names {
        refusal.count += 1;
        if refusal.nodes.len() < Refusal::MAX_EXAMPLES {
            let detail = other_node(node);
            refusal.nodes.push(NodeRefusal { node: name.to_string(), detail });
        }
    }
    (refusal.count > 0).then_some(refusal)
}

fn other_node(node: Option<&NodeName>) -> String {
    match node {
        Some(node) => format!("the service is global, and this is the pod of {node}"),
        None => "the service is global, and no node has a pod of this number any more".to_owned(),
    }
}

fn no_refusals_yet(reason: Reason) -> Refusal {
    Refusal { reason: reason.to_string(), count: 0, nodes: Vec::new() }
}
