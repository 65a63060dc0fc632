//! Health checks of the managed pods: keeps the [monitor](crate::health::monitor) probing what runs, and notes in
//! the table what the probes show.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use common::pod::ContainerProgress;
use tokio::sync::mpsc;

use crate::context::SessionContext;
use crate::health::{CheckKind, HealthChange};
use crate::table::ManagedPod;
use common::health::Health;

/// Probes for as long as the session lasts.
pub(crate) fn run(context: &Arc<SessionContext>, mut changes: mpsc::UnboundedReceiver<HealthChange>) {
    let (monitor, stopping) = (context.health.clone(), context.tasks.stopping().clone());
    let task_context = context.clone();
    context.tasks.spawn(async move {
        let note_changes = async {
            while let Some(change) = changes.recv().await {
                note(&task_context, &change);
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = monitor.run() => {}
            () = note_changes => {}
        }
    });
}

/// Notes a change; a container that is unhealthy, or that others wait for, is looked at.
fn note(context: &SessionContext, change: &HealthChange) {
    let HealthChange { handle, kind, started, health, message, .. } = change;
    let Some(pod) = context.table.note_health(handle, *started, *kind, *health, message) else { return };
    let check = match kind {
        CheckKind::Healthcheck => "health check",
        CheckKind::Readiness => "readiness check",
    };
    match health {
        Health::Unhealthy => tracing::warn!(%pod, container = handle, message, "the {check} has failed"),
        Health::Healthy | Health::Starting => {
            tracing::info!(%pod, container = handle, "the {check} has passed");
        }
    }
    context.wakeups.request_reconcile();
}

/// Probes the running containers of a pod from now on.
pub(crate) fn probe(context: &SessionContext, managed: &ManagedPod) {
    for container in managed.containers.iter().filter(|container| container.checks.exist()) {
        let is_running = container.progress == ContainerProgress::Running;
        let Some(handle) = container.handle.as_deref() else { continue };
        match container.running_since.filter(|_| is_running) {
            Some(started) => {
                let address = address_of(context, managed);
                let checks = container.checks.to_probe(handle, address, started);
                checks.into_iter().for_each(|check| context.health.set(check));
            }
            None => context.health.remove(handle),
        }
    }
}

/// Probes no other containers than those of managed pods.
pub(crate) fn forget_others(context: &SessionContext) {
    // Most nodes have no checks, and then the handles of all pods are not worth a copy at each pass.
    if context.health.is_empty() {
        return;
    }
    let handles: HashSet<String> = context.table.handles();
    context.health.retain(|handle| handles.contains(handle));
}

fn address_of(context: &SessionContext, managed: &ManagedPod) -> Option<IpAddr> {
    if context.worker.runtime.uses_host_network() {
        return Some(Ipv4Addr::LOCALHOST.into());
    }
    managed.network.address.parse().ok()
}
