//! The outcome of a plan: what is different after the changes.

use std::collections::BTreeMap;

use model::ids::{NodeName, PodId, PodName, ServiceName};
use model::node::{Node, NodeState, Resources};
use model::pod::lifecycle::Phase;

use super::fork::{Fork, ForkedPod, Picture};
use crate::drain::Place;

/// Each costs a judgement of all nodes.
const MAX_SUGGESTIONS: usize = 20;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct PlanOutcome {
    /// From a node to another one.
    pub moves: Vec<PlannedPod>,
    /// That were not there, or waited.
    pub starts: Vec<PlannedPod>,
    pub stops: Vec<PlannedPod>,
    /// Pods that fit no node, and would have to be on one.
    pub stuck: Vec<StuckPod>,
    pub nodes: Vec<NodeChange>,
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedPod {
    /// `None` of one that the plan adds.
    pub id: Option<PodId>,
    pub name: PodName,
    pub service: Option<ServiceName>,
    pub replica: u32,
    pub from: Option<NodeName>,
    pub to: Option<NodeName>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct StuckPod {
    pub pod: PlannedPod,
    pub why: String,
    /// It waits for its data, which is on one node only.
    pub is_bound: bool,
    /// See [`placement::suggest`].
    pub change: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeChange {
    pub name: NodeName,
    pub capacity: Resources,
    /// `None` if the plan adds the node.
    pub before: Option<Resources>,
    pub after: Resources,
    pub is_lost: bool,
}

impl PlanOutcome {
    pub(super) fn new(before: &Picture, fork: &Fork) -> Self {
        let mut outcome = Self { notes: fork.notes.clone(), ..Self::default() };
        let mut suggested: BTreeMap<(PodName, String), Option<String>> = BTreeMap::new();
        for (index, forked) in fork.pods.iter().enumerate() {
            let was = before.pods.get(index).cloned().flatten();
            let is_new = index >= before.pods.len();
            let pod = planned(forked, was.clone().flatten(), is_new);
            let waited = was == Some(None);
            match (was.flatten(), &pod.to) {
                (Some(_), None) if forked.is_gone => outcome.stops.push(pod.clone()),
                (Some(from), Some(to)) if from != *to => outcome.moves.push(pod.clone()),
                (None, Some(_)) => outcome.starts.push(pod.clone()),
                _ => {}
            }
            if let Some(stuck) = forked.stuck.as_ref().filter(|_| !waited && !forked.is_gone) {
                let is_bound = has_data(forked) && !matches!(stuck, Place::Pushed);
                let why = stuck.why_not().unwrap_or_default();
                let key = (pod.name.clone(), why.clone());
                let is_full = suggested.len() >= MAX_SUGGESTIONS;
                let new = || if is_bound || is_full { None } else { suggest(fork, forked, stuck) };
                let change = suggested.entry(key).or_insert_with(new).clone();
                outcome.stuck.push(StuckPod { pod, why, is_bound, change });
            }
        }
        let all = [&mut outcome.moves, &mut outcome.starts, &mut outcome.stops];
        all.into_iter().for_each(|pods| pods.sort_by(|a, b| (&a.name, a.replica).cmp(&(&b.name, b.replica))));
        outcome.stuck.sort_by(|a, b| (&a.pod.name, a.pod.replica).cmp(&(&b.pod.name, b.pod.replica)));
        outcome.nodes = fork.snapshot.nodes().map(|node| node_change(before, node)).collect();
        outcome
    }

    /// Whether a pod fits nowhere for another reason than its data.
    pub fn fits(&self) -> bool {
        self.stuck.iter().all(|stuck| stuck.is_bound)
    }

    /// Where the pods of a service are after the plan, if it moves, starts or stops them.
    pub fn places(&self, service: &ServiceName) -> BTreeMap<u32, Option<NodeName>> {
        let all = self.moves.iter().chain(&self.starts).chain(&self.stops);
        let of_service = all.filter(|pod| pod.service.as_ref() == Some(service));
        of_service.map(|pod| (pod.replica, pod.to.clone())).collect()
    }
}

fn planned(forked: &ForkedPod, from: Option<NodeName>, is_new: bool) -> PlannedPod {
    let payload = &forked.pod.payload;
    PlannedPod {
        id: (!is_new).then(|| payload.id.clone()),
        name: payload.name.clone(),
        service: payload.service(),
        replica: payload.replica,
        from,
        to: forked.node.clone().filter(|_| !forked.is_gone),
    }
}

fn has_data(forked: &ForkedPod) -> bool {
    let volumes = forked.pod.request.requirements.volumes.as_ref();
    volumes.is_some_and(|volumes| !volumes.bound.is_empty())
}

/// A drained node is to be empty: it is no place.
fn suggest(fork: &Fork, forked: &ForkedPod, stuck: &Place) -> Option<String> {
    if Fork::refusals_of(stuck).is_empty() {
        return None;
    }
    let mut snapshot = fork.snapshot.clone();
    for node in &fork.drained {
        snapshot.remove(node);
    }
    let mut pods = [forked.pod.clone()];
    let mut placed = fork.set_services(&mut pods);
    if let (Some(node), Some(generation)) = (&forked.node, &forked.pod.request.generation)
        && forked.phase != Phase::Pending
    {
        placed.take_out(node, generation);
    }
    snapshot.set_placed(placed);
    placement::suggest(&snapshot, fork.now, &fork.policy, &pods[0].request)
}

fn node_change(before: &Picture, node: &Node) -> NodeChange {
    NodeChange {
        name: node.name.clone(),
        capacity: node.facts.capacity,
        before: before.nodes.get(&node.name).copied(),
        after: node.used,
        is_lost: node.state == NodeState::Dead,
    }
}
