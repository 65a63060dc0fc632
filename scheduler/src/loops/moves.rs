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
use model::spec::{Kind, PlacementProfile};
use pending::{LeavingPod, Place, begin_moves, plan_drain};
use placement::PlacementPolicy;
use store::{DrainNews, Store, StoreError, Subscription, channel, tick_or_hints};

use crate::context::SchedulerContext;

/// While a node is drained.
const STEP: Duration = Duration::from_secs(1);
/// A hint may have been missed.
const IDLE: Duration = Duration::from_secs(10);
const LEASE_TIME: Duration = Duration::from_secs(8);

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
            policy: context.placement_policy(),
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
        let mut by_service: BTreeMap<&ServiceName, Vec<&LeavingPod>> = BTreeMap::new();
        for pod in &leaving {
            if let (Some(service), Place::On(_)) = (&pod.record.service, &pod.place) {
                by_service.entry(service).or_default().push(pod);
            }
        }
        for (service, pods) in by_service {
            self.move_pods(service, name, drain, &pods).await?;
        }
        Ok(())
    }

    async fn move_pods(
        &self,
        name: &ServiceName,
        node: &NodeName,
        drain: &Drain,
        pods: &[&LeavingPod],
    ) -> Result<(), StoreError> {
        let Some(service) = self.store.service(name).await? else { return Ok(()) };
        if service.kind() == Kind::Job {
            // Its indices go on elsewhere, from the beginning: with a deadline they may end before.
            return match drain.deadline {
                None => self.stop(Some(name), pods.iter().copied()).await,
                Some(_) => Ok(()),
            };
        }
        let moves = pods.iter().filter_map(|pod| pod.begun_move()).collect();
        begin_moves(&self.store, &service, moves, None, &format!("{node} is being drained")).await.map(drop)
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
