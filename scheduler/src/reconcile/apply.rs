//! Carrying a plan out. No choices are left here.

use common::ids::{PodId, SchedulerId};
use common::pod::PodRecord;
use common::service::Service;
use common::store::{CreateOutcome, RequeueOutcome, StopOutcome, Store, StoreError};
use futures_util::{StreamExt, TryStreamExt};

use super::plan::{Holder, Plan, Slot, Stop, Why};

/// Pods looked for in the queues at a time.
const AT_A_TIME: usize = 16;

/// Who holds the slots of a service, now; and why the first of those can not be read that can not.
pub(crate) async fn read_slots(
    store: &Store,
    service: &Service,
) -> Result<(Vec<Slot>, Option<StoreError>), StoreError> {
    let held = store.slots(&service.name).await?;
    let ids: Vec<PodId> = held.iter().map(|(_, id)| id.clone()).collect();
    let records = store.pods_each(&ids).await?;
    let mut unreadable = None;
    let slot = |((replica, id), record)| {
        let holder = match record {
            Ok(Some(pod)) => Holder::Pod(Box::new(pod)),
            Ok(None) => Holder::Gone,
            Err(error) => {
                unreadable.get_or_insert(error);
                Holder::Unreadable
            }
        };
        Slot { replica, id, holder }
    };
    let slots = held.into_iter().zip(records).map(slot).collect();
    Ok((slots, unreadable))
}

/// Does what the plan says, except requeueing. True when slots became free, or the service is another one by now:
/// then there is more to plan at once.
pub(crate) async fn carry_out(store: &Store, service: &Service, plan: &Plan) -> Result<bool, StoreError> {
    let mut more = store.free_slots(&service.name, &plan.free).await? > 0;
    for stops in plan.stop.chunk_by(|a, b| a.why == b.why) {
        more |= stop(store, service, stops).await?;
    }
    if !plan.create.is_empty() {
        more |= store.create_pods(service, &plan.create).await? == CreateOutcome::Changed;
    }
    if plan.forget && store.forget_service(service).await? {
        tracing::info!(service = %service.name, "the last pod of the deleted service is gone");
    }
    Ok(more)
}

/// True when a slot became free, or a pod is not where it was seen.
async fn stop(store: &Store, service: &Service, stops: &[Stop]) -> Result<bool, StoreError> {
    let Some(first) = stops.first() else { return Ok(false) };
    let (reason, message) = words(service, first.why);
    let pods: Vec<_> = stops.iter().map(|stop| (stop.id.clone(), stop.node.clone())).collect();
    let outcomes = store.stop_pods(Some(&service.name), &pods, reason, &message).await?;
    Ok(outcomes.into_iter().any(|outcome| match outcome {
        StopOutcome::Stopped | StopOutcome::Gone | StopOutcome::Moved => true,
        StopOutcome::Stopping => false,
    }))
}

fn words(service: &Service, why: Why) -> (&'static str, String) {
    match why {
        Why::Deleted => ("ServiceDeleted", "its service was deleted".to_owned()),
        Why::ScaledDown => ("ScaledDown", format!("its service has {} replicas now", service.replicas)),
        Why::Replaced => ("Replaced", format!("generation {} takes its place", service.generation)),
        Why::AlreadyStopping => ("Stopping", "it was asked to stop before".to_owned()),
    }
}

/// Looks for the payloads of these pods, and puts back what is nowhere. Gives how many were.
pub(crate) async fn requeue(
    store: &Store,
    suspects: Vec<PodRecord>,
    schedulers: &[SchedulerId],
) -> Result<usize, StoreError> {
    let each = suspects.into_iter().map(async |pod| requeue_one(store, &pod, schedulers).await);
    futures_util::stream::iter(each)
        .buffer_unordered(AT_A_TIME)
        .try_fold(0, async |sum, put| Ok(sum + usize::from(put)))
        .await
}

async fn requeue_one(store: &Store, pod: &PodRecord, schedulers: &[SchedulerId]) -> Result<bool, StoreError> {
    match store.requeue_missing(pod, schedulers).await {
        Ok(outcome) => Ok(outcome == RequeueOutcome::Queued),
        Err(error) if error.is_transient() => Err(error),
        // Broken keys of one pod or one node are no reason to leave the others.
        Err(error) => {
            tracing::debug!(pod = %pod.id, "its payload can not be looked for: {error}");
            Ok(false)
        }
    }
}
