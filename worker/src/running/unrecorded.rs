//! Containers whose pods have no record in Redis: which are held ([`crate::running::held_pods`]), and which
//! are removed.
//!
//! Tests: tests::holding, scenarios::mistakes::lost_keys

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use engine::{Container, PodKey};
use model::node::HeldPod;
use model::spec::OnDisconnect;
use store::StoreError;
use store::recovery;

use crate::running::held_pods;
use crate::running::remove::{Why, remove};
use crate::session::context::SessionContext;

/// False without any action if Redis did not answer completely.
pub(crate) async fn decide(
    context: &Arc<SessionContext>,
    managed: &HashSet<PodKey>,
    unknown: &[&Container],
    all: &[Container],
) -> bool {
    let Ok(Sorted { held, fenced }) = sort(context, unknown, all).await else { return false };
    forget(context, managed, all);
    hold(context, unknown, &held);
    context.worker.backup.note_fenced(unknown.iter().copied().filter(|c| fenced.contains(&c.key())));
    let removed = unknown.iter().filter(|container| !held.contains(&container.key()));
    for container in removed.clone() {
        let Container { handle, pod, assignment, .. } = container;
        let is_managed = context.table.mark_foreign(pod, assignment);
        if !is_managed && !context.table.accounts_for(handle, pod, assignment) {
            remove(context, (*container).clone(), Why::NoRecord);
        }
    }
    if removed.count() > 0 {
        context.wakeups.request_reconcile();
    }
    true
}

fn forget(context: &SessionContext, pods: &HashSet<PodKey>, containers: &[Container]) {
    let with_container: HashSet<PodKey> = containers.iter().map(Container::key).collect();
    for (pod, assignment) in pods.difference(&with_container) {
        context.table.mark_foreign(pod, assignment);
    }
}

struct Sorted {
    held: HashSet<PodKey>,
    /// Not held, because they must not run twice.
    fenced: HashSet<PodKey>,
}

async fn sort(
    context: &SessionContext,
    unknown: &[&Container],
    all: &[Container],
) -> Result<Sorted, StoreError> {
    let doubtful_since = context.link.doubtful_since(&context.worker.timings);
    let is_new = |container: &Container| {
        let managed = context.table.get(&container.pod);
        let since = managed.and_then(|managed| managed.running_since());
        since.is_some_and(|since| since >= doubtful_since)
    };
    let pods: HashSet<PodKey> = unknown.iter().map(|container| container.key()).collect();
    if held_pods::must_hold(unknown, all, is_new) {
        return Ok(Sorted { held: pods, fenced: HashSet::new() });
    }
    let may_run = unknown.iter().filter(|container| container.state.may_run());
    let running: HashSet<PodKey> = may_run.map(|container| container.key()).collect();
    let mut held = held_pods::still_held(context.held.among(&pods), &running);
    let wanted = wanted(context, running.difference(&held).cloned().collect()).await?;
    let must_stop = |c: &&&Container| c.on_disconnect == OnDisconnect::Stop;
    let exclusive: HashSet<PodKey> = unknown.iter().filter(must_stop).map(|c| c.key()).collect();
    let (fenced, kept): (_, HashSet<PodKey>) = wanted.into_iter().partition(|pod| exclusive.contains(pod));
    held.extend(kept);
    Ok(Sorted { held, fenced })
}

/// Pods too old for a failover to have lost their records, unless Redis does not want them.
async fn wanted(context: &SessionContext, pods: HashSet<PodKey>) -> Result<HashSet<PodKey>, StoreError> {
    if pods.is_empty() {
        return Ok(pods);
    }
    let worker = &context.worker;
    let read = async {
        let before = context.link.doubtful_time(worker.store.redis_now().await?, &worker.timings);
        let saved = worker.backup.older(&pods, before);
        let unwanted = recovery::unwanted(&worker.store.known_state(&saved).await?, &saved);
        let keys = saved.pods.iter().filter_map(|pod| pod.id().zip(pod.assignment.clone()));
        Ok(keys.filter(|(pod, _)| !unwanted.contains(pod)).collect())
    };
    read.await.inspect_err(|error| worker.redis_log.failed(error))
}

fn hold(context: &SessionContext, unknown: &[&Container], held: &HashSet<PodKey>) {
    let containers = unknown.iter().filter(|container| held.contains(&container.key()));
    let pods: HashMap<_, _> =
        containers.map(|container| (container.key(), slot_of(context, container))).collect();
    let (node, count) = (&context.worker.node, pods.len());
    // Held before they are no longer managed, so that their saved entries stay.
    let is_changed = context.held.set(pods);
    for (pod, assignment) in held {
        // Once its record is back, it is found in `cs` again.
        context.table.remove(pod, assignment);
    }
    if is_changed && count > 0 {
        tracing::error!(
            %node, count,
            "Redis has no records of pods that run here: holding their containers. They go on, those with \
             `on_disconnect: stop` until the lease ends, and nothing looks after them; `kubeleet status` says so"
        );
        context.wakeups.request_heartbeat();
    }
}

fn slot_of(context: &SessionContext, container: &Container) -> Option<HeldPod> {
    let managed = context.table.get(&container.pod).filter(|pod| pod.assignment == container.assignment);
    let Some(managed) = managed else {
        return context.worker.backup.slot_of(&container.pod, &container.assignment);
    };
    let replica = managed.payload.replica;
    managed.service.map(|service| HeldPod { service, replica, pod: container.pod.clone() })
}
