//! Room for pods of a higher priority: others are stopped for one that fits nowhere, and it gets their room.
//!
//! The room is kept in the node's record, and no other pod is assigned to it. It ends by itself, and
//! sooner if the pod does not wait any more. So nothing is lost with a scheduler: the pod waits
//! as before, and the next one that takes it finds its room in the view.
//!
//! Tests: scheduler::tests::preemption

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use ::metrics::counter;
use model::ids::{NodeName, PodId};
use model::pod::lifecycle::Phase;
use pending::{PendingPod, PreemptionSearch, parked};
use placement::{PlacementPolicy, Target};
use store::{Parked, Store, StoreError};

use crate::metrics;
use crate::view::ClusterView;

/// In the cluster. More wait until these are over.
const MAX_NOMINATIONS: usize = 10;
/// Reading the pods of nodes costs as much as placing some hundred.
const ATTEMPT_INTERVAL: Duration = Duration::from_secs(1);
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Preempting {
    search: PreemptionSearch,
    rests_until: Option<Instant>,
    looked_at: Option<Instant>,
}

impl Preempting {
    /// Drops the nominations of pods that do not wait any more.
    pub(crate) async fn drop_ended(
        &mut self,
        store: &Store,
        view: &mut ClusterView,
    ) -> Result<(), StoreError> {
        if view.nominations().is_empty() || self.looked_at.is_some_and(|at| at.elapsed() < LOOK_INTERVAL) {
            return Ok(());
        }
        self.looked_at = Some(Instant::now());
        let nominated: Vec<(PodId, NodeName)> =
            view.nominations().iter().map(|(pod, node)| (pod.clone(), node.clone())).collect();
        let ids: Vec<PodId> = nominated.iter().map(|(pod, _)| pod.clone()).collect();
        let records = store.pods(&ids).await?;
        for ((pod, node), record) in nominated.iter().zip(records.iter()) {
            let waits = match record {
                Ok(record) => record.as_ref().is_some_and(|record| record.phase == Phase::Pending),
                // It ends by itself.
                Err(_) => true,
            };
            if !waits {
                store.drop_nomination(node, pod).await?;
                view.read_nodes(store, std::slice::from_ref(node)).await?;
            }
        }
        Ok(())
    }

    /// Pods are about to be parked, for they fit nowhere: looks for the room of the most urgent ones, until
    /// there is none.
    pub(crate) async fn make_room(
        &mut self,
        store: &Store,
        view: &mut ClusterView,
        policy: &PlacementPolicy,
        pods: &mut [(PendingPod, Parked)],
    ) -> Result<(), StoreError> {
        let begun = Instant::now();
        let mut wanting: Vec<&PendingPod> = Vec::new();
        if self.rests_until.is_none_or(|until| begun >= until) {
            let is_nominated = |pod: &PendingPod| view.nominations().contains_key(&pod.payload.id);
            let pods = pods.iter().map(|(pod, _)| pod);
            wanting.extend(pods.filter(|pod| pod.preempts && !is_nominated(pod)));
            wanting.sort_by_key(|pod| Reverse(pod.priority));
        }
        for (attempts, pod) in (1..).zip(wanting) {
            if view.nominations().len() >= MAX_NOMINATIONS {
                break;
            }
            self.rests_until = Some(begun + attempts * ATTEMPT_INTERVAL);
            match self.preempt(store, view, policy, pod).await {
                Err(error) if error.is_broken_key() => {
                    tracing::error!(pod = %pod.payload.id, %error, "no pod is stopped for it: fix the key");
                    break;
                }
                Ok(true) => {}
                // Nor is there for a less urgent one, mostly.
                Ok(false) => break,
                Err(error) => return Err(error),
            }
        }
        for (pod, parked) in pods {
            if let Some(node) = view.nominations().get(&pod.payload.id) {
                *parked = as_nominated(pod, node);
            }
        }
        Ok(())
    }

    /// Returns whether room is kept for the pod now.
    async fn preempt(
        &mut self,
        store: &Store,
        view: &mut ClusterView,
        policy: &PlacementPolicy,
        pod: &PendingPod,
    ) -> Result<bool, StoreError> {
        let Some(service) = pod.payload.service() else { return Ok(false) };
        let Some(found) = self.search.find(store, (view.snapshot(), view.now(), policy), pod).await? else {
            return Ok(false);
        };
        let request = pod.request.requirements.resources();
        let message =
            format!("makes room for {service}-{}, which has priority {}", pod.payload.replica, pod.priority);
        let id = &pod.payload.id;
        let is_kept = store.preempt((id, &service), request, policy.dead_after, &found, &message).await?;
        if is_kept {
            counter!(metrics::PREEMPTIONS).increment(found.victims.len() as u64);
        }
        view.read_nodes(store, std::slice::from_ref(&found.node)).await?;
        Ok(is_kept)
    }
}

/// The pod with room of its own goes there, unless it is to go to another node. For the decision the room
/// counts as free; the script assigns no other pod to it.
pub(crate) fn set_targets(view: &ClusterView, pods: &mut [PendingPod]) {
    if view.nominations().is_empty() {
        return;
    }
    for pod in pods.iter_mut().filter(|pod| pod.request.target.is_none()) {
        let node = view.nominations().get(&pod.payload.id);
        pod.request.target = node.map(|node| Target::Planned(node.clone()));
        pod.has_room = node.is_some();
    }
}

/// It has a class of its own, which no look can judge: so each look wakes it, as when a pod has ended.
fn as_nominated(pod: &PendingPod, node: &NodeName) -> Parked {
    let message = format!("waits for pods of a lower priority to stop on {node}, whose room it gets");
    let parked = parked(pod.payload.clone(), pod.request.requirements.resources(), "Nominated", message);
    Parked { class: Some(format!("nominated-{}", pod.payload.id)), ..parked }
}
