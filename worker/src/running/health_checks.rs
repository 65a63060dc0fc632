//! Health checks of this node's pods: has the [monitor](health::monitor) probe, and notes results in the
//! [table](crate::running::table).

use std::collections::HashSet;
use std::sync::Arc;

use engine::ContainerState;
use futures_util::stream::{StreamExt, poll_fn};
use model::pod::health::Health;
use model::pod::{ContainerProgress, EndedRun};
use tokio::sync::mpsc;

use crate::running::ended_runs;
use crate::running::table::ManagedPod;
use crate::session::context::SessionContext;
use health::{CheckChange, CheckKind, HealthChange};

/// Changes are noted in their order: the last one of a container wins.
const MAX_EXAMINED: usize = 32;

pub(crate) fn spawn(context: &Arc<SessionContext>, mut changes: mpsc::UnboundedReceiver<HealthChange>) {
    let (monitor, stopping) = (context.health.clone(), context.tasks.stopping().clone());
    let task_context = context.clone();
    context.tasks.spawn(async move {
        let note_changes = async {
            let changes = poll_fn(|waker| changes.poll_recv(waker));
            let mut explained = changes.map(|change| explain(&task_context, change)).buffered(MAX_EXAMINED);
            while let Some(change) = explained.next().await {
                if let Some(change) = change {
                    note(&task_context, &change);
                }
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = monitor.run() => {}
            () = note_changes => {}
        }
    });
}

/// `None` if the container has ended: the report of its exit says more than a failed probe.
async fn explain(context: &SessionContext, change: HealthChange) -> Option<HealthChange> {
    let is_failed = change.kind == CheckKind::Healthcheck
        && change.change == CheckChange::Health
        && change.health == Health::Unhealthy;
    if !is_failed {
        return Some(change);
    }
    let runtime = &*context.worker.runtime;
    if let Ok(Some(container)) = runtime.find(&context.worker.node, &change.handle).await
        && matches!(container.state, ContainerState::Exited { .. })
    {
        context.doubted.insert(container.pod, change.handle);
        context.wakeups.request_reconcile();
        return None;
    }
    let output = ended_runs::last_output(runtime, &change.handle).await;
    let message = EndedRun::explain(change.message, &output);
    Some(HealthChange { message, ..change })
}

fn note(context: &SessionContext, change: &HealthChange) {
    let HealthChange { handle, kind, health, message, .. } = change;
    let Some(pod) = context.table.note_health(change) else { return };
    let check = kind.as_str();
    match (change.change, health) {
        (CheckChange::Health, Health::Unhealthy) => {
            tracing::warn!(%pod, container = handle, message, "the {check} has failed");
        }
        (CheckChange::Health, Health::Healthy | Health::Starting) => {
            tracing::info!(%pod, container = handle, "the {check} has passed");
        }
        (CheckChange::Failing, _) => {
            tracing::info!(%pod, container = handle, message, "the {check} has not passed yet");
        }
        (CheckChange::Inconclusive, _) => tracing::warn!(%pod, container = handle, "{message}"),
        (CheckChange::Conclusive, _) => {
            tracing::info!(%pod, container = handle, "probes of the {check} have results again");
        }
    }
    context.wakeups.request_reconcile();
}

pub(crate) fn update_checks(context: &SessionContext, managed: &ManagedPod) {
    for container in managed.containers.iter().filter(|container| container.checks.exist()) {
        let is_running = container.progress == ContainerProgress::Running;
        let Some(handle) = container.handle.as_deref() else { continue };
        match container.running_since.filter(|_| is_running) {
            Some(started) => {
                let address = managed.address(context.worker.runtime.uses_host_network());
                let checks = container.checks.to_probe(handle, address, started);
                checks.into_iter().for_each(|check| context.health.set(check));
            }
            None => context.health.remove(handle),
        }
    }
}

pub(crate) fn forget_gone_containers(context: &SessionContext) {
    // Most nodes have no checks.
    if context.health.is_empty() {
        return;
    }
    let handles: HashSet<String> = context.table.handles();
    context.health.retain(|handle| handles.contains(handle));
}
