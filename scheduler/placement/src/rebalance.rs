//! Moves pods that run from fuller nodes to emptier ones, as few as it takes. Pure.
//!
//! A pod moves if it would be placed elsewhere today, by the code that decides, and that is better by more
//! than a pod is worth. The load that a pod adds depends only on how many are there, so the sum of all that
//! was added falls with each move: it ends, and a second run finds nothing. Pressure is no part of it,
//! because it would have to be guessed for the target.
//!
//! Tests: tests::rebalance

use std::collections::{BTreeMap, BTreeSet};

use model::RedisMillis;
use model::ids::NodeName;
use model::node::Node;

use crate::decision::{Outcome, decide};
use crate::explain::Evaluator;
use crate::policy::PlacementPolicy;
use crate::requirements::{Generation, PodRequest};
use crate::score::LoadScore;
use crate::snapshot::ClusterSnapshot;

/// A pod that may move: of a service with the profile `default`, without ordinals, and bound to no node.
#[derive(Debug, Clone)]
pub struct RunningPod {
    pub request: PodRequest,
    pub node: NodeName,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relocation {
    /// Index of the pod.
    pub pod: usize,
    pub to: NodeName,
}

/// The nodes with most pods hand over first, so a plan that is cut is the best part of the whole. All pods
/// are among those that the snapshot counts.
pub fn rebalance(
    snapshot: &ClusterSnapshot,
    now: RedisMillis,
    policy: &PlacementPolicy,
    pods: &[RunningPod],
    max_moves: usize,
) -> Vec<Relocation> {
    let mut balance = Balance::new(snapshot, now, policy, pods);
    let mut open: BTreeSet<NodeName> = balance.by_node.keys().cloned().collect();
    let mut has_moved = false;
    while balance.moved < max_moves {
        let Some(fullest) = balance.fullest(&open) else {
            if !std::mem::take(&mut has_moved) {
                break;
            }
            // A later move may have made room for an earlier one.
            open = balance.by_node.keys().cloned().collect();
            continue;
        };
        match balance.best_move(&fullest) {
            Some((pod, to)) => {
                balance.relocate(pod, &to);
                open.insert(to);
                has_moved = true;
            }
            None => drop(open.remove(&fullest)),
        }
    }
    balance.relocations()
}

struct Balance<'a> {
    snapshot: ClusterSnapshot,
    now: RedisMillis,
    policy: &'a PlacementPolicy,
    pods: &'a [RunningPod],
    at: Vec<NodeName>,
    /// The pods of a generation are alike.
    by_node: BTreeMap<NodeName, BTreeMap<&'a Generation, Vec<usize>>>,
    /// Pods that are not where they were.
    moved: usize,
    moves: Vec<usize>,
}

impl<'a> Balance<'a> {
    fn new(
        snapshot: &ClusterSnapshot,
        now: RedisMillis,
        policy: &'a PlacementPolicy,
        pods: &'a [RunningPod],
    ) -> Self {
        let mut own = ClusterSnapshot::new(policy.weights);
        snapshot.nodes().for_each(|node| own.upsert(Node { psi: None, ..node.clone() }));
        own.set_placed(snapshot.placed().clone());
        let mut by_node: BTreeMap<NodeName, BTreeMap<&Generation, Vec<usize>>> = BTreeMap::new();
        for (index, pod) in pods.iter().enumerate() {
            if let Some(generation) = &pod.request.generation {
                by_node.entry(pod.node.clone()).or_default().entry(generation).or_default().push(index);
            }
        }
        let at = pods.iter().map(|pod| pod.node.clone()).collect();
        Self { snapshot: own, now, policy, pods, at, by_node, moved: 0, moves: Vec::new() }
    }

    /// Returns the fullest open node; ties go to the first name.
    fn fullest(&self, open: &BTreeSet<NodeName>) -> Option<NodeName> {
        let load =
            |name: &NodeName| self.snapshot.index_of(name).map(|index| self.snapshot.key_of(index).load);
        open.iter().max_by(|one, other| load(one).cmp(&load(other)).then_with(|| other.cmp(one))).cloned()
    }

    /// Returns the pod that gains most, and its new node.
    fn best_move(&mut self, from: &NodeName) -> Option<(usize, NodeName)> {
        let of_node = self.by_node.get(from)?;
        // The pods that arrived last move first: an original pod may stay.
        let candidates: Vec<usize> = of_node.values().filter_map(|pods| pods.last().copied()).collect();
        let mut best: Option<(LoadScore, usize, NodeName)> = None;
        for pod in candidates {
            let found = self.gain(pod);
            if let Some((gain, to)) =
                found.filter(|(gain, _)| best.as_ref().is_none_or(|best| *gain > best.0))
            {
                best = Some((gain, pod, to));
            }
        }
        best.map(|(_, pod, to)| (pod, to))
    }

    fn gain(&mut self, pod: usize) -> Option<(LoadScore, NodeName)> {
        let (from, request) = (self.at[pod].clone(), &self.pods[pod].request);
        self.take_out(pod, &from);
        let found = self.better_place(request, &from);
        self.put(pod, &from);
        found
    }

    fn better_place(&self, request: &PodRequest, from: &NodeName) -> Option<(LoadScore, NodeName)> {
        let decisions = decide(&self.snapshot, self.now, self.policy, std::slice::from_ref(request));
        let Some(Outcome::Place(target)) = decisions.into_iter().next().map(|one| one.outcome) else {
            return None;
        };
        if target.name == *from {
            return None;
        }
        let evaluator = Evaluator::new(&self.snapshot, self.now, self.policy, request);
        // A pod that its node would refuse today stays: drains and constraints have moves of their own.
        let load = |name| {
            let evaluation = evaluator.evaluate(self.snapshot.entry(name)?);
            evaluation.is_feasible().then_some(evaluation.load)
        };
        let gain = load(from)?.saturating_sub(load(&target.name)?);
        (gain >= self.least_gain()).then(|| (gain, target.name.clone()))
    }

    /// One pod on a node of 100 slots.
    fn least_gain(&self) -> LoadScore {
        let weights = &self.policy.weights;
        LoadScore::from(weights.pod_share).saturating_add(weights.pod_count.into()).max(1)
    }

    fn take_out(&mut self, pod: usize, node: &NodeName) {
        let request = &self.pods[pod].request;
        self.snapshot.release(node, request.requirements.resources());
        request.generation.iter().for_each(|generation| self.snapshot.release_placed(node, generation));
    }

    fn put(&mut self, pod: usize, node: &NodeName) {
        let request = &self.pods[pod].request;
        self.snapshot.commit(node, request.requirements.resources());
        request.generation.iter().for_each(|generation| self.snapshot.commit_placed(node, generation));
    }

    fn relocate(&mut self, pod: usize, to: &NodeName) {
        let pods = self.pods;
        let (from, before) = (self.at[pod].clone(), &pods[pod].node);
        self.take_out(pod, &from);
        self.put(pod, to);
        self.moved = self.moved + usize::from(from == *before) - usize::from(to == before);
        let Some(generation) = &pods[pod].request.generation else { return };
        if let Some(alike) = self.by_node.get_mut(&from).and_then(|of_node| of_node.get_mut(generation)) {
            alike.retain(|other| *other != pod);
        }
        self.by_node.entry(to.clone()).or_default().entry(generation).or_default().push(pod);
        self.at[pod] = to.clone();
        self.moves.push(pod);
    }

    /// In the order of their last moves, so that each finds the room that others have left.
    fn relocations(&self) -> Vec<Relocation> {
        let mut seen = BTreeSet::new();
        let last = self.moves.iter().rev().filter(|pod| seen.insert(**pod));
        let last: Vec<usize> = last.copied().filter(|pod| self.at[*pod] != self.pods[*pod].node).collect();
        last.into_iter().rev().map(|pod| Relocation { pod, to: self.at[pod].clone() }).collect()
    }
}
