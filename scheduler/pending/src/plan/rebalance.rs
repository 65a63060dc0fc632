//! Balances the nodes of a fork: which pods move, so that a node that joined gets its share.
//!
//! Tests: plan::tests, placement::tests::rebalance, scheduler::tests::rebalancing

use std::collections::{BTreeSet, HashMap};

use model::ids::{NodeName, ServiceName};
use model::node::NodeState;
use model::pod::lifecycle::Phase;
use model::service::ServiceState;
use model::spec::{PlacementProfile, RelationKind};
use placement::{PlacedPods, RunningPod, rebalance};

use super::fork::Fork;
use crate::drain::stays;
use crate::intake::PendingPod;

impl Fork {
    /// Pods with data, ordinals, ports of their machine or another profile than `default` stay, and so do
    /// those of services that are updated, moved, let none go, or are drawn by other services.
    pub(super) fn rebalance(&mut self, max_moves: usize) {
        let drawn = self.drawn_by_others();
        let may_leave = |pod: &usize| {
            let service = self.pods[*pod].pod.payload.service();
            self.may_move(*pod) && service.is_none_or(|service| !drawn.contains(&service))
        };
        let movable: Vec<usize> = (0..self.pods.len()).filter(may_leave).collect();
        let mut pods: Vec<PendingPod> = movable.iter().map(|pod| self.located(*pod)).collect();
        self.set_services(&mut pods);
        let placed = self.all_placed();
        self.snapshot.set_placed(placed);
        let (mut indices, mut running) = (Vec::new(), Vec::new());
        for (index, pod) in movable.into_iter().zip(pods) {
            let requirements = &pod.request.requirements;
            let has_data = requirements.volumes.as_ref().is_some_and(|volumes| !volumes.bound.is_empty());
            let is_default = requirements.profile == PlacementProfile::Default;
            if let Some(node) = self.pods[index].node.clone().filter(|_| is_default && !has_data) {
                running.push(RunningPod { request: pod.request.clone(), node });
                indices.push((index, pod));
            }
        }
        let moves = rebalance(&self.snapshot, self.now, &self.policy, &running, max_moves);
        for one in moves {
            let (index, pod) = &indices[one.pod];
            self.take_out(*index);
            self.assign(*index, pod.clone(), &one.to);
        }
    }

    /// Services with an affinity or a soft anti-affinity, and those that these name. A move would take the
    /// pods from each other, or the sum of all loads would not fall: pods could follow each other for ever.
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
        let is_calm = service.is_some_and(|service| {
            service.kind().is_service()
                && service.state == ServiceState::Active
                && service.rollout.is_settled
                && service.moves.is_empty()
                && stays(service).is_none()
        });
        forked.phase == Phase::Running
            && !forked.is_gone
            && forked.pod.request.ordinal.is_none()
            && !forked.pod.is_global()
            && is_calm
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
