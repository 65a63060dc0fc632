//! Balances the nodes of a fork: which pods move, so that a node that joined gets its share; and which one
//! leaves a node under pressure.
//!
//! Tests: plan::tests, placement::tests::rebalance, scheduler::tests::rebalancing

use std::collections::{BTreeSet, HashMap};

use model::ids::{NodeName, PodId, ServiceName};
use model::node::NodeState;
use model::pod::lifecycle::Phase;
use model::service::ServiceState;
use model::spec::{PlacementProfile, RelationKind};
use placement::{Outcome, PlacedPods, RunningPod, decide, rebalance};

use super::change::{PressureKind, Relief};
use super::fork::Fork;
use crate::drain::{is_calm, stays};
use crate::intake::PendingPod;

/// A pod that may move, and its index.
struct MovablePod {
    index: usize,
    pod: PendingPod,
    node: NodeName,
}

impl Fork {
    pub(super) fn rebalance(&mut self, max_moves: usize) {
        let movable = self.movable(0..self.pods.len());
        let placed = self.all_placed();
        self.snapshot.set_placed(placed);
        let running: Vec<RunningPod> = movable
            .iter()
            .map(|MovablePod { pod, node, .. }| RunningPod {
                request: pod.request.clone(),
                node: node.clone(),
            })
            .collect();
        let moves = rebalance(&self.snapshot, self.now, &self.policy, &running, max_moves);
        for one in moves {
            let MovablePod { index, pod, .. } = &movable[one.pod];
            self.take_out(*index);
            self.assign(*index, pod.clone(), &one.to);
        }
    }

    /// The new node has less of this pressure by as much as is too much.
    pub(super) fn relieve(&mut self, Relief { kind, pods, min_age }: &Relief) {
        let by_id = self.pods.iter().enumerate().map(|(index, pod)| (&pod.pod.payload.id, index));
        let by_id: HashMap<&PodId, usize> = by_id.collect();
        let youngest = self.now.saturating_sub(min_age.as_millis() as u64);
        let is_old = |index: &usize| self.pods[*index].created_at <= youngest;
        let indices = pods.iter().filter_map(|id| by_id.get(id).copied()).filter(is_old);
        for MovablePod { index, mut pod, node } in self.movable(indices) {
            let placed = self.set_services(std::slice::from_mut(&mut pod));
            self.snapshot.set_placed(placed);
            let phase = self.pods[index].phase;
            self.take_out(index);
            let decisions = decide(&self.snapshot, self.now, &self.policy, std::slice::from_ref(&pod));
            let to = decisions.into_iter().find_map(|decision| match decision.outcome {
                Outcome::Place(target) => Some(target.name.clone()),
                Outcome::Unschedulable { .. } => None,
            });
            if let Some(to) = to.filter(|to| self.is_relief(*kind, &node, to)) {
                return self.assign(index, pod, &to);
            }
            self.assign(index, pod, &node);
            self.pods[index].phase = phase;
        }
    }

    fn is_relief(&self, kind: PressureKind, from: &NodeName, to: &NodeName) -> bool {
        let of = |name| self.snapshot.get(name).and_then(|node| node.psi).map(|psi| kind.of(&psi));
        from != to && of(from).zip(of(to)).is_some_and(|(from, to)| from - to >= PressureKind::MUCH)
    }

    /// Pods with data, ordinals, ports of their machine or another profile than `default` stay, and so do
    /// those of services that are updated, moved, let none go, or are drawn by other services.
    fn movable(&self, pods: impl Iterator<Item = usize>) -> Vec<MovablePod> {
        let drawn = self.drawn_by_others();
        let is_drawn =
            |pod: usize| self.pods[pod].pod.payload.service().is_some_and(|service| drawn.contains(&service));
        let indices: Vec<usize> = pods.filter(|pod| self.may_move(*pod) && !is_drawn(*pod)).collect();
        let mut pods: Vec<PendingPod> = indices.iter().map(|pod| self.located(*pod)).collect();
        self.set_services(&mut pods);
        let movable = indices.into_iter().zip(pods).filter_map(|(index, pod)| {
            let requirements = &pod.request.requirements;
            let has_data = requirements.volumes.as_ref().is_some_and(|volumes| !volumes.bound.is_empty());
            let is_default = requirements.profile == PlacementProfile::Default;
            let node = self.pods[index].node.clone().filter(|_| is_default && !has_data)?;
            Some(MovablePod { index, pod, node })
        });
        movable.collect()
    }

    /// Services with an affinity or a soft anti-affinity, and those that these name. A move would take the
    /// pods from each other, or the sum of all loads would not fall with it: pods could follow each other
    /// for ever.
    fn drawn_by_others(&self) -> BTreeSet<ServiceName> {
        let relations = self.services.values().flat_map(|service| {
            let relations = service.fields.placement.iter().flat_map(|placement| placement.relations());
            relations.map(|relation| (&service.name, relation))
        });
        let drawn = relations.filter(|(_, relation)| !relation.hard || relation.kind == RelationKind::Near);
        drawn.flat_map(|(owner, relation)| [owner.clone(), relation.service]).collect()
    }

    fn may_move(&self, pod: usize) -> bool {
        let forked = &self.pods[pod];
        let is_here = |node: &NodeName| {
            self.snapshot.get(node).is_some_and(|node| node.state == NodeState::Alive && !node.cordoned)
        };
        let service = forked.pod.payload.service().and_then(|name| self.services.get(&name));
        let is_free = service.is_some_and(|service| {
            service.kind().is_service()
                && service.state == ServiceState::Active
                && is_calm(service)
                && stays(service).is_none()
        });
        forked.phase == Phase::Running
            && !forked.is_gone
            && forked.pod.request.ordinal.is_none()
            && !forked.pod.is_global()
            && is_free
            && forked.node.as_ref().is_some_and(is_here)
    }

    fn all_placed(&self) -> PlacedPods {
        let mut placed = PlacedPods::default();
        for forked in self.pods.iter().filter(|pod| !pod.is_gone) {
            let Some((generation, node)) = forked.pod.request.generation.as_ref().zip(forked.node.as_ref())
            else {
                continue;
            };
            placed.generations.entry(generation.clone()).or_default();
            placed.services.entry(generation.service.clone()).or_default();
            placed.staying.entry(generation.service.clone()).or_default();
            placed.add(node, generation);
        }
        PlacedPods { ordinals: HashMap::new(), ..placed }
    }
}
