//! Waiting for the services that a pod's service depends on, after all containers ended unseen by a worker. A
//! pod's first start waits in [`crate::start::pod_start`].

use std::sync::Arc;

use model::ids::{AssignmentId, PodId, ServiceName};

use crate::running::step::DesiredState;
use crate::running::table::ManagedPod;
use crate::session::context::SessionContext;
use crate::start::dependency_gate::POLL_INTERVAL;

pub(crate) fn wait_all(context: &SessionContext, pods: &[ManagedPod]) {
    for managed in pods {
        if managed.service.is_some() && managed.desired == DesiredState::Run {
            context.table.update(&managed.payload.id, &managed.assignment, |managed| {
                managed.waits_for.get_or_insert_default();
            });
        }
    }
    context.wakeups.request_reconcile();
}

pub(crate) fn watch_waiting(context: &Arc<SessionContext>, pods: &[ManagedPod]) {
    for managed in pods {
        let pod = &managed.payload.id;
        let Some(service) = managed.service.clone().filter(|_| managed.waits_for.is_some()) else { continue };
        if context.dependencies.watched.lock().insert(pod.clone()) {
            let (pod, assignment) = (pod.clone(), managed.assignment.clone());
            context.tasks.spawn(watch(context.clone(), pod, assignment, service));
        }
    }
}

async fn watch(context: Arc<SessionContext>, pod: PodId, assignment: AssignmentId, service: ServiceName) {
    let is_waiting = || {
        let managed = context.table.get(&pod).filter(|managed| managed.assignment == assignment);
        managed.is_some_and(|managed| managed.waits_for.is_some() && managed.desired == DesiredState::Run)
    };
    let (store, dead_after) = (&context.worker.store, context.worker.config.timing.dead_after);
    while is_waiting() {
        match context.dependencies.obstacle(store, dead_after, &service).await {
            Ok(obstacle) => note(&context, &pod, &assignment, obstacle),
            Err(error) => context.worker.redis_log.failed(&error),
        }
        if !is_waiting() {
            break;
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = context.tasks.stopping().cancelled() => break,
        }
    }
    context.dependencies.watched.lock().remove(&pod);
}

fn note(context: &SessionContext, pod: &PodId, assignment: &AssignmentId, obstacle: Option<String>) {
    let is_known = context.table.get(pod).is_none_or(|managed| managed.waits_for == obstacle);
    if is_known {
        return;
    }
    match &obstacle {
        Some(message) => tracing::warn!(%pod, message, "the containers of the pod are not started again yet"),
        None => tracing::info!(%pod, "the pod's dependencies are there: starting its containers again"),
    }
    context.table.update(pod, assignment, |managed| {
        managed.waits_for = obstacle;
        managed.is_reported = false;
    });
    context.wakeups.request_reconcile();
}
