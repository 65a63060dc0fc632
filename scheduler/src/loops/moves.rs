//! Plans where the pods of drained nodes go. The reconcile loop moves them, at the pace of their service.
//!
//! The order is in the node's record and the plan in those of the services, so any scheduler goes on. A pod
//! that fits nowhere stays, and is planned as soon as it fits. At the deadline what is left is stopped. Pods
//! of global services are stopped when no other one is left that will go.

use std::collections::BTreeMap;
use std::time::Duration;

use daemon::control_loop::{Loop, Next};
use model::ids::{NodeName, PodId, SchedulerId, ServiceName};
use model::node::NodeState;
use model::node::drain::Drain;
use model::service::moves::{Move, Moves};
use model::spec::{Kind, PlacementProfile};
use pending::{LeavingPod, Place, plan_drain};
use placement::PlacementPolicy;
use store::{DrainNews, Store, StoreError, Subscription, channel, tick_or_hints};

use crate::context::SchedulerContext;

/// While a node is drained.
const STEP: Duration = Duration::from_secs(1);
/// A hint may have been missed.
const IDLE: Duration = Duration::from_secs(10);
const LEASE_TIME: Duration = Duration::from_secs(8);
const MAX_NAMES: usize = 5;

pub(crate) struct MovesLoop {
    store: Store,
    id: SchedulerId,
    policy: PlacementPolicy,
    profile: PlacementProfile,
    hints: Subscription,
    is_draining: bool,
}

impl Loop<StoreError> for MovesLoop {
    const NAME: &'static str = "moves";

    async fn step(&mut self) -> Result<Next, StoreError> {
        self.is_draining = false;
        // First: reading all nodes is for one scheduler.
        if !self.store.lease(Self::NAME, &self.id, LEASE_TIME).await? {
            return Ok(Next::Rest);
        }
        let drains = self.store.drains().await?;
        self.is_draining = !drains.is_empty();
        for (node, drain) in drains {
            match self.drain(&node, &drain).await {
                Err(error) if !error.is_transient() => {
                    tracing::error!(%node, %error, "the drain cannot go on: fix the key");
                }
                result => result?,
            }
        }
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        tick_or_hints(if self.is_draining { STEP } else { IDLE }, &mut self.hints).await;
        Ok(())
    }
}

impl MovesLoop {
    pub(crate) fn new(context: &SchedulerContext) -> Self {
        Self {
            store: context.store.clone(),
            id: context.id.clone(),
            policy: PlacementPolicy { dead_after: context.timings.dead_after, ..PlacementPolicy::default() },
            profile: context.profile,
            hints: context.store.subscribe(channel::MOVES),
            is_draining: false,
        }
    }

    async fn drain(&self, name: &NodeName, drain: &Drain) -> Result<(), StoreError> {
        let Some(node) = self.store.node(name).await? else { return Ok(()) };
        // The pods of a dead node go on elsewhere anyway.
        if node.state == NodeState::Dead || node.drain.as_ref() != Some(drain) {
            return Ok(());
        }
        let leaving = plan_drain(&self.store, &self.policy, self.profile, name).await?;
        if leaving.is_empty() {
            if node.used.pods == 0 {
                self.store.note_drain(name, drain, DrainNews::Drained).await?;
            }
            return Ok(());
        }
        let (last, leaving): (Vec<LeavingPod>, Vec<LeavingPod>) =
            leaving.into_iter().partition(|pod| pod.place == Place::Global);
        let is_over = drain.is_over(self.store.redis_now().await?);
        if is_over && !leaving.is_empty() {
            return self.stop_rest(name, drain, &leaving, &last).await;
        }
        // Others may still be stopping.
        if leaving.is_empty() && (is_over || node.used.pods <= last.len() as u64) {
            return self.stop_by_service(last.iter()).await;
        }
        let mut by_service: BTreeMap<&ServiceName, Vec<(&LeavingPod, &NodeName)>> = BTreeMap::new();
        for pod in &leaving {
            if let (Some(service), Place::On(to)) = (&pod.record.service, &pod.place) {
                by_service.entry(service).or_default().push((pod, to));
            }
        }
        for (service, pods) in by_service {
            self.move_pods(service, drain, &pods).await?;
        }
        Ok(())
    }

    async fn move_pods(
        &self,
        name: &ServiceName,
        drain: &Drain,
        pods: &[(&LeavingPod, &NodeName)],
    ) -> Result<(), StoreError> {
        let Some(service) = self.store.service(name).await? else { return Ok(()) };
        if service.kind() == Kind::Job {
            // Its indices go on elsewhere, from the beginning: with a deadline they may end before.
            return match drain.deadline {
                None => self.stop(Some(name), pods.iter().map(|(pod, _)| *pod)).await,
                Some(_) => Ok(()),
            };
        }
        let (moves, begun) = with_moves(&service.moves, pods);
        if begun.is_empty() {
            return Ok(());
        }
        let more = begun.len().saturating_sub(MAX_NAMES);
        let mut news = begun[..begun.len().min(MAX_NAMES)].join(", ");
        if more > 0 {
            news = format!("{news} and {more} more");
        }
        // If it has changed, the next look plans again.
        self.store.put_moves(&service, &moves, Some(&news)).await.map(drop)
    }

    async fn stop_rest(
        &self,
        name: &NodeName,
        drain: &Drain,
        leaving: &[LeavingPod],
        last: &[LeavingPod],
    ) -> Result<(), StoreError> {
        let is_stopped = |pod: &&LeavingPod| drain.stop_bound || !pod.is_bound;
        let mut rest: Vec<&LeavingPod> = leaving.iter().filter(is_stopped).collect();
        let bound = leaving.len() - rest.len();
        if rest.is_empty() {
            rest.extend(last);
        }
        let news = format!("{} pods that are left are stopped, {bound} stay with their data", rest.len());
        self.store.note_drain(name, drain, DrainNews::PastDeadline(&news)).await?;
        self.stop_by_service(rest.into_iter()).await
    }

    async fn stop_by_service(&self, pods: impl Iterator<Item = &LeavingPod>) -> Result<(), StoreError> {
        let mut by_service: BTreeMap<Option<&ServiceName>, Vec<&LeavingPod>> = BTreeMap::new();
        for pod in pods {
            by_service.entry(pod.record.service.as_ref()).or_default().push(pod);
        }
        for (service, pods) in by_service {
            self.stop(service, pods.into_iter()).await?;
        }
        Ok(())
    }

    async fn stop(
        &self,
        service: Option<&ServiceName>,
        pods: impl Iterator<Item = &LeavingPod>,
    ) -> Result<(), StoreError> {
        let pods: Vec<(PodId, Option<NodeName>)> =
            pods.map(|pod| (pod.record.id.clone(), pod.record.node.clone())).collect();
        self.store.stop_pods(service, &pods, "Drained", "its node is being drained").await.map(drop)
    }
}

/// Those that are planned stay. Also returns the new ones in words.
fn with_moves(known: &Moves, pods: &[(&LeavingPod, &NodeName)]) -> (Moves, Vec<String>) {
    let mut moves = known.by_replica().clone();
    let mut begun = Vec::new();
    for (pod, to) in pods {
        let id = &pod.record.id;
        if moves.get(&pod.record.replica).is_some_and(|one| one.pod == *id) {
            continue;
        }
        begun.push(format!("{}-{} to {to}", pod.record.name, pod.record.replica));
        moves.insert(pod.record.replica, Move { pod: id.clone(), to: (*to).clone() });
    }
    (Moves::of(moves), begun)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use model::pod::PodRecord;
    use model::pod::lifecycle::Phase;
    use testkit::fixtures;

    use super::*;

    #[test]
    fn a_planned_move_stays_and_one_of_a_former_pod_is_replaced() {
        let id = |text: &str| PodId::new(text).unwrap();
        let leaving = |replica, uuid: &str, to: &str| {
            let record = PodRecord { id: id(uuid), ..fixtures::pod_record("web", replica, Phase::Running) };
            let to = NodeName::new(to).unwrap();
            (LeavingPod { record, place: Place::On(to.clone()), is_bound: false }, to)
        };
        let planned = [leaving(0, "a", "w3"), leaving(1, "b", "w2"), leaving(2, "c", "w2")];
        let known = |uuid: &str| Move { pod: id(uuid), to: NodeName::new("w2").unwrap() };
        let before = Moves::of(BTreeMap::from([(0, known("a")), (1, known("former"))]));
        let pods: Vec<_> = planned.iter().map(|(pod, to)| (pod, to)).collect();
        let (moves, begun) = with_moves(&before, &pods);
        assert_eq!(begun, ["web-1 to w2", "web-2 to w2"]);
        let expected = [(0, known("a")), (1, known("b")), (2, known("c"))];
        assert_eq!(moves, Moves::of(expected.into()));
        assert!(with_moves(&moves, &pods).1.is_empty());
    }
}
