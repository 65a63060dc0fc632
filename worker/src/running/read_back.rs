//! Restores the table of running pods from Redis, after a restart of the worker, a failover, or a manual
//! repair.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use model::ids::{AssignmentId, PodId};
use model::network::ContainerNetwork;
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use model::spec::{ContainerSpec, PodSpec};
use store::{FinishReport, PodOutcome, PodRef, RequeueOutcome, StoreError};

use crate::running::step::DesiredState;
use crate::running::table::ManagedPod;
use crate::session::context::SessionContext;
use crate::start::dependency_gate::WAITING;
use crate::start::image_checks;

pub(crate) async fn recover_running(context: &SessionContext) -> Result<(), StoreError> {
    // The pods first: a pod that starts meanwhile is in the set before it is managed.
    let managed: Vec<(Payload, AssignmentId)> =
        context.table.map_managed(|managed| Some((managed.payload.clone(), managed.assignment.clone())));
    let members = context.session.container_set().await?;
    list_again(context, managed, &members).await?;
    let payloads = members.into_iter().filter_map(|raw| parse_member(context, raw));
    let unknown: Vec<Payload> = payloads.filter(|payload| !context.table.contains(&payload.id)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let ids: Vec<PodId> = unknown.iter().map(|payload| payload.id.clone()).collect();
    let records = readable_records(context, &ids).await?;
    let mut recovered = 0;
    for (payload, record) in unknown.into_iter().zip(records) {
        if let Some(Some(record)) = record {
            recovered += usize::from(insert(context, payload, &record).await?);
        }
    }
    if recovered > 0 {
        let node = &context.worker.node;
        tracing::info!(%node, recovered, "managing pods that an earlier session started");
    }
    Ok(())
}

/// Puts payloads back that another program has removed from the set. A pod whose slot is gone as well would
/// run for ever, unknown to all but this worker.
async fn list_again(
    context: &SessionContext,
    mut managed: Vec<(Payload, AssignmentId)>,
    members: &[Bytes],
) -> Result<(), StoreError> {
    let members: HashSet<&Bytes> = members.iter().collect();
    managed.retain(|(payload, _)| !members.contains(&payload.raw));
    let ids: Vec<PodId> = managed.iter().map(|(payload, _)| payload.id.clone()).collect();
    for ((payload, assignment), record) in managed.iter().zip(readable_records(context, &ids).await?) {
        let Some(Some(record)) = record else { continue };
        if record.assignment.as_ref() == Some(assignment)
            && matches!(record.phase, Phase::Running | Phase::Stopping)
            && context.worker.store.requeue_payload(&record, payload, &[]).await? == RequeueOutcome::Queued
        {
            let node = &context.worker.node;
            tracing::warn!(%node, pod = %payload.id, "cs:{node} lacked this pod, which runs here: listed again");
        }
    }
    Ok(())
}

fn parse_member(context: &SessionContext, raw: Bytes) -> Option<Payload> {
    let payload = Payload::parse(raw.clone());
    if payload.is_err() {
        context.broken_records.note_member(&raw, &format!("cs:{}", context.worker.node));
    }
    payload.ok()
}

/// In this order: `Some(None)` if missing, `None` if broken. A broken record affects only its own pod.
async fn readable_records(
    context: &SessionContext,
    pods: &[PodId],
) -> Result<Vec<Option<Option<PodRecord>>>, StoreError> {
    let records = context.worker.store.pods(pods).await?;
    let readable = pods.iter().zip(records).map(|(pod, record)| match record {
        Ok(record) => {
            context.broken_records.forget(pod);
            Some(record)
        }
        Err(error) => {
            context.broken_records.note(pod, &error.to_string());
            None
        }
    });
    Ok(readable.collect())
}

async fn insert(context: &SessionContext, payload: Payload, record: &PodRecord) -> Result<bool, StoreError> {
    let desired = match record.phase {
        Phase::Running => DesiredState::Run,
        Phase::Stopping => DesiredState::Stop,
        Phase::Pending | Phase::Assigned | Phase::Stopped | Phase::Succeeded | Phase::Failed => {
            return Ok(false);
        }
    };
    if record.node.as_ref() != Some(&context.worker.node) {
        return Ok(false);
    }
    let Some(assignment) = record.assignment.clone() else { return Ok(false) };
    let spec = spec_of(context, &payload).await?;
    let mut managed = ManagedPod::new(payload, record.service.clone(), assignment, spec);
    managed.desired = desired;
    managed.resource_ids = record.resource_ids.clone();
    managed.network =
        ContainerNetwork { address: record.address.clone(), ports: record.published_ports.clone() };
    image_checks::find(&context.worker, &mut managed).await;
    let now = context.worker.now();
    if record.reason == WAITING {
        managed.waits_for = Some(record.message.clone());
    }
    let is_own = record.phase == Phase::Running && managed.waits_for.is_none();
    let reason_of = |reason| if is_own { reason } else { "" };
    if managed.has_several() {
        for (index, known) in managed.statuses_of(record) {
            let count = (known.restarts, known.exit_code);
            managed.containers[index].take_over_state(now, count, reason_of(&known.reason), &known.message);
        }
    } else if let Some(container) = managed.containers.first_mut() {
        let count = (record.restarts, record.exit_code);
        container.take_over_state(now, count, reason_of(&record.reason), &record.message);
    }
    // A remark about its checks, which start anew.
    managed.is_reported = !record.reason.is_empty() || record.message.is_empty();
    context.table.insert_recovered(managed);
    Ok(true)
}

async fn spec_of(context: &SessionContext, payload: &Payload) -> Result<Arc<PodSpec>, StoreError> {
    let spec = match &payload.spec {
        None => payload.inline_spec().ok().map(|inline| Arc::new(inline.pod)),
        Some(id) => match context.worker.store.pod_spec(id).await {
            Ok(spec) => spec,
            Err(error) if error.is_transient() => return Err(error),
            Err(_) => None,
        },
    };
    let of_image = || PodSpec {
        containers: vec![ContainerSpec::from_image(payload.image.as_str())],
        ..PodSpec::default()
    };
    Ok(spec.unwrap_or_else(|| Arc::new(of_image())))
}

/// Most unknown pods wait in the queue, where the claim finishes them, or are in `cs` and are recovered. The
/// request of another node's pod is void; a pod whose payload a failover lost is inserted from its record, to
/// be finished.
pub(crate) async fn resolve_unknown(context: &SessionContext) -> Result<(), StoreError> {
    let overdue = context.unknown_pods.take_overdue(context.worker.timings.sweep_interval);
    let unknown: Vec<PodId> = overdue.into_iter().filter(|pod| !context.table.contains(pod)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let store = &context.worker.store;
    let records = readable_records(context, &unknown).await?;
    for (pod, record) in unknown.iter().zip(records) {
        let Some(record) = record else { continue };
        let is_here =
            record.as_ref().is_some_and(|record| record.node.as_ref() == Some(&context.worker.node));
        match record {
            Some(record) if is_here && record.phase == Phase::Stopping => {
                if let Some(payload) = store.payload_of(&record).await? {
                    insert(context, payload, &record).await?;
                }
            }
            Some(_) if is_here => {}
            Some(_) | None => withdraw_stop_request(context, pod).await,
        }
    }
    Ok(())
}

/// A finish under an assignment that never existed changes nothing but the stop request.
async fn withdraw_stop_request(context: &SessionContext, pod: &PodId) {
    let no_assignment = AssignmentId::random();
    let report = FinishReport::new(PodOutcome::Stopped);
    let pod = PodRef { id: pod, assignment: &no_assignment };
    let finish = || context.session.finish(pod, b"", None, &report).boxed();
    context.persist("withdrawing a stop request", finish).await;
}
