//! Reads the input of a plan and executes it.

use std::collections::HashSet;

use futures_util::{StreamExt, TryStreamExt};
use model::RedisMillis;
use model::ids::{PodId, SchedulerId};
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::pod::slot::Slot;
use model::service::Service;
use store::{
    CreateOutcome, FormerGeneration, MarkOutcome, ReplacedPod, RequeueOutcome, RolloutMark, StopOutcome,
    Store, StoreError,
};

use super::lost_pods::GonePods;
use super::plan::ReconcilePlan;
use super::rollout::{RolloutStep, is_judged};
use super::slots::{PodStop, ReplicaSlot, SlotHolder, StopReason};

const CONCURRENT_SEARCHES: usize = 16;

pub(crate) const STOPPED_AGAIN: &str = "stop requested again; the first request may have been lost";

/// Also returns the first error of a record.
pub(crate) async fn read_slots(
    store: &Store,
    service: &Service,
) -> Result<(Vec<ReplicaSlot>, Option<StoreError>), StoreError> {
    let taken = store.slots(&service.name).await?;
    let ids: Vec<PodId> = taken.iter().map(|(_, id)| id.clone()).collect();
    let records = store.pods(&ids).await?;
    let mut first_error = None;
    let mut seen = HashSet::new();
    let mut slots = Vec::with_capacity(taken.len());
    for ((slot, id), record) in taken.into_iter().zip(records) {
        let holder = match record {
            Ok(Some(pod)) => {
                let is_holder = match pod.is_of(&service.name, slot) {
                    // Sorted: the first slot of a replica comes first.
                    true => seen.insert(id.clone()),
                    // Without an owner, the record was overwritten.
                    false => !store.has_owner(&pod).await?,
                };
                if is_holder { SlotHolder::Pod(Box::new(pod)) } else { SlotHolder::Void }
            }
            Ok(None) => SlotHolder::NoRecord,
            Err(error) => {
                first_error.get_or_insert(error);
                SlotHolder::Unreadable
            }
        };
        slots.push(ReplicaSlot { slot, id, holder });
    }
    Ok((slots, first_error))
}

pub(crate) async fn free_void(
    store: &Store,
    service: &Service,
    slots: &[ReplicaSlot],
) -> Result<bool, StoreError> {
    let void = slots.iter().filter(|slot| slot.holder == SlotHolder::Void);
    let void: Vec<_> = void.map(|slot| (slot.slot, Some(slot.id.clone()))).collect();
    if void.is_empty() {
        return Ok(false);
    }
    let freed = store.free_slots(&service.name, &void).await?;
    tracing::error!(
        service = %service.name, freed,
        "slots named pods of other slots, as if another program had copied them; they are free, and those pods are \
         left alone"
    );
    Ok(freed > 0)
}

/// Ended ones are left out.
pub(crate) async fn read_gone(
    store: &Store,
    service: &Service,
    pods: Vec<(u32, PodId)>,
) -> Result<GonePods, StoreError> {
    let mut gone = GonePods::default();
    if pods.is_empty() {
        return Ok(gone);
    }
    let ids: Vec<PodId> = pods.iter().map(|(_, id)| id.clone()).collect();
    let records = store.pods(&ids).await?;
    let is_here = |pod: &PodRecord, replica| {
        let is_placed = matches!(pod.phase, Phase::Assigned | Phase::Running);
        is_placed && pod.is_of(&service.name, Slot::first(replica))
    };
    for ((replica, id), record) in pods.into_iter().zip(records) {
        match record {
            Ok(None) => gone.lost.push((replica, id)),
            Ok(Some(pod)) if is_here(&pod, replica) => gone.unlisted.push((replica, id)),
            Ok(Some(_)) | Err(_) => {}
        }
    }
    Ok(gone)
}

/// A former master's clock may differ by an hour: a future time becomes that of the failover. So does an
/// earlier one while an update is judged: a pod's earlier state shows nothing. `seen_now` is from before the
/// slots were read.
pub(crate) async fn settle_times(
    store: &Store,
    service: &Service,
    slots: &mut [ReplicaSlot],
    seen_now: RedisMillis,
) -> Result<(), StoreError> {
    let is_judged = service.fields.update.is_some() && is_judged(service);
    let latest = |pod: &PodRecord| pod.since.max(pod.created_at).max(pod.ready_since.unwrap_or(0));
    let has_future = slots.iter().filter_map(ReplicaSlot::pod).any(|pod| latest(pod) > seen_now);
    if !is_judged && !has_future {
        return Ok(());
    }
    // Later times are in the future.
    let now = store.redis_now().await?;
    let taken_over_at = store.master_changed_at().await?.map(|at| at.min(now));
    let settle = |time: &mut RedisMillis| {
        if *time > now {
            *time = taken_over_at.unwrap_or(now);
        } else if is_judged {
            *time = taken_over_at.map_or(*time, |at| at.max(*time));
        }
    };
    for slot in slots {
        let SlotHolder::Pod(pod) = &mut slot.holder else { continue };
        settle(&mut pod.since);
        settle(&mut pod.created_at);
        pod.ready_since.iter_mut().for_each(settle);
    }
    Ok(())
}

/// Except requeueing. Returns true if another plan is needed at once. Broken keys of some pods fail last.
pub(crate) async fn carry_out(
    store: &Store,
    service: &Service,
    plan: &ReconcilePlan,
) -> Result<bool, StoreError> {
    let mut needs_another = store.free_slots(&service.name, &plan.free).await? > 0;
    let mut first_error = None;
    match store.keep_pods(&service.name, &plan.keep).await {
        Err(error) if !error.is_transient() => drop(first_error.get_or_insert(error)),
        result => drop(result?),
    }
    for stops in plan.stop.chunk_by(|a, b| a.reason == b.reason) {
        match stop(store, service, stops).await {
            Err(error) if !error.is_transient() => drop(first_error.get_or_insert(error)),
            result => needs_another |= result?,
        }
    }
    if !plan.create.is_empty() {
        needs_another |= store.create_pods(service, &plan.create).await? == CreateOutcome::Changed;
    }
    needs_another |= replace(store, service, plan).await?;
    if let Some(moves) = &plan.moves {
        store.put_moves(service, moves, None).await?;
    }
    if let Some(step) = &plan.rollout {
        needs_another |= carry_out_rollout(store, service, step).await?;
    }
    if plan.forget && store.forget_service(service).await? {
        tracing::info!(service = %service.name, "deleted service removed: its last pod is gone");
    }
    first_error.map_or(Ok(needs_another), Err)
}

/// Returns true if another step may follow at once.
async fn replace(store: &Store, service: &Service, plan: &ReconcilePlan) -> Result<bool, StoreError> {
    if !plan.replace.is_empty() {
        let is_moved = |pod: &ReplacedPod| service.moves.is_moved(&pod.id);
        let reason = if plan.replace.iter().all(is_moved) { StopReason::Moved } else { StopReason::Replaced };
        let (_, message) = event_texts(service, reason);
        let has_more = store.replace_pods(service, &plan.replace, &message).await?;
        return Ok(has_more || !plan.successors.is_empty());
    }
    if plan.successors.is_empty() {
        return Ok(false);
    }
    let created = store.create_successors(service, &plan.successors).await?;
    Ok(created != CreateOutcome::Created(plan.successors.len()))
}

/// Leaves out the changing times of retries.
pub(crate) async fn note_held(
    store: &Store,
    service: &Service,
    plan: &ReconcilePlan,
) -> Result<(), StoreError> {
    let held = plan.held.as_deref().map(|why| why.split("; retrying in ").next().unwrap_or(why));
    if plan.rollout.is_some() || held == service.rollout.held.as_deref() {
        return Ok(());
    }
    match store.mark_rollout(service, RolloutMark::Held(held.unwrap_or_default())).await {
        // The mark only informs.
        Err(error) if error.is_out_of_memory() => Ok(()),
        result => result.map(drop),
    }
}

/// Returns true if the service has changed.
async fn carry_out_rollout(store: &Store, service: &Service, step: &RolloutStep) -> Result<bool, StoreError> {
    let done = try_rollout(store, service, step).await;
    match done {
        // The next check finds its pods good again.
        Err(error) if error.is_out_of_memory() && *step == RolloutStep::Settle => Ok(false),
        done => done,
    }
}

async fn try_rollout(store: &Store, service: &Service, step: &RolloutStep) -> Result<bool, StoreError> {
    let mark = match step {
        RolloutStep::Settle => RolloutMark::Settled,
        RolloutStep::AtCanary(what) => RolloutMark::AtCanary(what),
        RolloutStep::Pause(why) => RolloutMark::Paused(why),
        RolloutStep::RollBack(why) => match last_settled(store, service).await? {
            Some(former) => {
                let is_done = store.roll_back(service, &former, why).await?;
                tracing::warn!(service = %service.name, generation = service.generation, is_done, "rolled back: {why}");
                return Ok(true);
            }
            None => {
                let why = format!("{why}; there is no former specification to go back to");
                return Ok(store.mark_rollout(service, RolloutMark::Paused(&why)).await? != MarkOutcome::Same);
            }
        },
    };
    Ok(store.mark_rollout(service, mark).await? != MarkOutcome::Same)
}

/// The latest whose pods were all good; if none is known, the previous one.
async fn last_settled(store: &Store, service: &Service) -> Result<Option<FormerGeneration>, StoreError> {
    let former = store.former_generations(&service.name).await?;
    let settled = service.rollout.settled_fingerprint.as_deref();
    let chosen = match settled {
        // A restart keeps the fingerprint, with other images.
        Some(settled) => {
            former.into_iter().find(|one| one.fingerprint == settled && one.outcome.failure().is_none())
        }
        None => former.into_iter().next(),
    };
    Ok(chosen.filter(|former| former.differs_from(service)))
}

/// Returns true if a slot became free, or a pod has moved.
async fn stop(store: &Store, service: &Service, stops: &[PodStop]) -> Result<bool, StoreError> {
    let Some(first) = stops.first() else { return Ok(false) };
    let (reason, message) = event_texts(service, first.reason);
    let pods: Vec<_> = stops.iter().map(|stop| (stop.id.clone(), stop.node.clone())).collect();
    let name = Some(&service.name);
    let outcomes = match first.reason {
        // They may be ready by now.
        StopReason::Replaced | StopReason::Moved => {
            store.stop_unready_pods(name, &pods, reason, &message).await?
        }
        _ => store.stop_pods(name, &pods, reason, &message).await?,
    };
    Ok(outcomes.into_iter().any(|outcome| match outcome {
        StopOutcome::Stopped | StopOutcome::Gone | StopOutcome::Moved => true,
        StopOutcome::Stopping => false,
    }))
}

fn event_texts(service: &Service, reason: StopReason) -> (&'static str, String) {
    let Service { name, replicas, generation, .. } = service;
    match reason {
        StopReason::ServiceDeleted => ("ServiceDeleted", format!("service {name} was deleted")),
        StopReason::ScaledDown => ("ScaledDown", format!("service {name} was scaled down to {replicas}")),
        StopReason::NodeLeft => {
            let why = "it is dead, or cordoned, or does not satisfy the constraints";
            ("NodeLeft", format!("service {name} wants no pod on the node any more: {why}"))
        }
        StopReason::Replaced => {
            ("Replaced", format!("replaced by generation {generation} of service {name}"))
        }
        StopReason::Moved => ("Moved", "moves to another node, as planned".to_owned()),
        StopReason::Surplus => ("Surplus", format!("another pod of service {name} has its place")),
        StopReason::JobEnded => ("JobEnded", format!("job {name} has ended")),
        StopReason::Retried => ("Retried", format!("its index of job {name} is tried again")),
        StopReason::AlreadyStopping => ("Stopping", STOPPED_AGAIN.to_owned()),
    }
}

pub(crate) async fn requeue(
    store: &Store,
    suspects: Vec<PodRecord>,
    schedulers: &[SchedulerId],
) -> Result<usize, StoreError> {
    let searches = suspects.into_iter().map(async |pod| requeue_one(store, &pod, schedulers).await);
    futures_util::stream::iter(searches)
        .buffer_unordered(CONCURRENT_SEARCHES)
        .try_fold(0, async |count, was_missing| Ok(count + usize::from(was_missing)))
        .await
}

async fn requeue_one(store: &Store, pod: &PodRecord, schedulers: &[SchedulerId]) -> Result<bool, StoreError> {
    match store.requeue_missing(pod, schedulers).await {
        Ok(outcome) => Ok(outcome == RequeueOutcome::Queued),
        Err(error) if error.is_transient() => Err(error),
        Err(error) => {
            tracing::debug!(pod = %pod.id, "cannot search for the pod's payload: {error}");
            Ok(false)
        }
    }
}
