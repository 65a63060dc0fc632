//! One pass of the [reconcile loop](crate::running::reconcile_loop).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use daemon::clock::BootInstant;
use engine::{Container, RuntimeError};
use model::ids::{AssignmentId, PodId};
use model::spec::OnDisconnect;
use store::StoreError;

use crate::node::engine_health::CheckedCall;
use crate::running::actions;
use crate::running::ended_pods;
use crate::running::health_checks;
use crate::running::lost_reports;
use crate::running::read_back;
use crate::running::remove::{Why, remove};
use crate::running::step::{ContainerFacts, PodFacts, SandboxFacts, step};
use crate::running::table::ManagedPod;
use crate::running::unrecorded;
use crate::session::beat;
use crate::session::context::SessionContext;
use crate::start::dependencies;
use crate::support::measure;

const MAX_CHECKS: usize = 256;
const MAX_ENDED_KEPT: usize = 20;

#[derive(Debug, thiserror::Error)]
pub(crate) enum PassError {
    #[error(transparent)]
    Engine(#[from] RuntimeError),
    #[error(transparent)]
    Redis(#[from] StoreError),
}

pub(crate) async fn reconcile(context: &Arc<SessionContext>, full: bool) -> Result<(), PassError> {
    let recovered = if full { recover_all(context).await } else { Ok(()) };
    // Pods change while the engine lists: only those idle before and unchanged after are acted on.
    let idle = context.table.idle();
    let asked = Instant::now();
    let cluster = context.worker.identity.cluster();
    // A container created meanwhile has files, but is not on the list.
    let directories = context.worker.files.directories(cluster.as_ref());
    let listed = context.worker.list().await;
    if context.worker.engine.record(CheckedCall::List, &listed) {
        context.wakeups.request_heartbeat();
    }
    let containers = listed?;
    context.worker.known.replace(&containers, asked);
    context.worker.backup.observe(&containers);
    context.worker.files.remove_leftovers(directories, &containers);
    let mut by_pod: HashMap<_, Vec<&Container>> = HashMap::new();
    for container in &containers {
        by_pod.entry((&container.pod, &container.assignment)).or_default().push(container);
    }
    // The machine or its engine was down.
    if !context.first_listing_done.is_cancelled() && !containers.iter().any(|one| one.state.may_run()) {
        dependencies::wait_all(context, &idle);
    }
    dependencies::watch_waiting(context, &idle);
    for managed in idle {
        let found = by_pod.get(&(&managed.payload.id, &managed.assignment)).cloned();
        act_on(context, managed, &found.unwrap_or_default());
    }
    if context.link.is_in_touch() {
        if full {
            ended_pods::release_deleted(context).await;
        }
        remove_foreign(context, &containers, full).await;
    }
    if full && !context.link.is_confirmed() {
        confirm(context, &containers).await;
    }
    remove_expired(context, &containers);
    health_checks::forget_gone_containers(context);
    measure::managed_pods(&context.worker.node, context.table.managed_count());
    Ok(recovered?)
}

/// Other pods do not wait. Returns false if an inspection must be retried.
pub(crate) async fn inspect_doubted(context: &Arc<SessionContext>) -> bool {
    let mut is_complete = true;
    for (pod, handle) in context.doubted.all() {
        let Some(managed) = context.table.get(&pod) else {
            // A starting pod is inspected once it is managed.
            if !context.table.contains(&pod) {
                context.doubted.remove(&pod);
            }
            continue;
        };
        if managed.busy {
            continue;
        }
        match inspect(context, &managed, handle).await {
            Ok(Some(containers)) => {
                context.doubted.remove(&pod);
                act_on(context, managed, &containers.iter().collect::<Vec<_>>());
            }
            // Only a list shows whether other containers belong to the pod.
            Ok(None) => {
                context.doubted.remove(&pod);
                context.wakeups.request_reconcile();
            }
            Err(error) => {
                tracing::debug!(%pod, %error, "a container cannot be inspected; retrying");
                is_complete = false;
            }
        }
    }
    is_complete
}

/// `None` if a container of the pod is gone or another pod's.
async fn inspect(
    context: &SessionContext,
    managed: &ManagedPod,
    handle: String,
) -> Result<Option<Vec<Container>>, RuntimeError> {
    let mut handles: Vec<String> = managed.handles().cloned().collect();
    if !handles.contains(&handle) {
        if managed.has_several() {
            return Ok(None);
        }
        handles = vec![handle];
    }
    let mut containers = Vec::with_capacity(handles.len());
    for handle in handles {
        match context.worker.runtime.find(&context.worker.node, &handle).await? {
            Some(container) if container.assignment == managed.assignment => containers.push(container),
            Some(_) | None => return Ok(None),
        }
    }
    Ok(Some(containers))
}

async fn recover_all(context: &SessionContext) -> Result<(), StoreError> {
    let recovered = async {
        read_back::recover_running(context).await?;
        read_back::resolve_unknown(context).await?;
        lost_reports::find(context).await
    };
    recovered.await.inspect_err(|error| context.worker.redis_log.failed(error))
}

fn act_on(context: &Arc<SessionContext>, managed: ManagedPod, found: &[&Container]) {
    let observed = managed.observe(found);
    let is_news = managed.is_news(&observed);
    let noted = if is_news { context.table.note_observed(&managed, &observed) } else { Some(managed) };
    let Some(managed) = noted else { return };
    health_checks::update_checks(context, &managed);
    let now = context.worker.now();
    let facts = PodFacts {
        desired: managed.desired,
        containers: managed
            .containers()
            .zip(&observed.containers)
            .map(|((spec, container), found)| ContainerFacts {
                sidecar: spec.sidecar,
                depends_on: managed.spec.dependencies(spec),
                observed: found.map(|found| found.state),
                health: container.checks.health(),
                was_unhealthy: container.was_unhealthy,
                policy: spec.restart,
                crash_streak: container.crash_streak,
                running_since: container.running_since,
                is_recovering: container.is_recovering(),
                ended_with_engine: container
                    .running_since
                    .is_some_and(|since| context.worker.engine.was_away_since(now.since(since))),
                restart_at: container.restart_at,
            })
            .collect(),
        sandbox: match managed.uses_sandbox(&context.worker) {
            true => SandboxFacts::Used(observed.sandbox.map(|sandbox| sandbox.state)),
            false => SandboxFacts::NotUsed,
        },
        is_leased: context.worker.is_leased(),
        keeps_running: managed.spec.on_disconnect == OnDisconnect::Keep,
        is_waiting: managed.waits_for.is_some(),
        retry_at: managed.retry_at,
        now,
    };
    let action = step(&facts, &context.worker.restart_backoff());
    actions::begin(context, managed, found, action);
}

/// Without a reply nothing is removed. If some have no record, asks about all, because their share matters.
async fn remove_foreign(context: &Arc<SessionContext>, containers: &[Container], full: bool) {
    let accounted = |c: &&Container| context.table.accounts_for(&c.handle, &c.pod, &c.assignment);
    let is_unaccounted = |c: &&Container| !accounted(c) && (full || !context.held.contains_container(c));
    let unaccounted: Vec<&Container> = containers.iter().filter(is_unaccounted).collect();
    let Some(answer) = ask_about(context, &unaccounted).await else { return };
    for container in ended_pods::keep(context, answer.moved).await {
        remove(context, container.clone(), Why::AssignedAnew);
    }
    let undecided = context.held.take_check();
    if !undecided.is_empty() || !answer.unknown.is_empty() {
        let all: Vec<&Container> = containers.iter().collect();
        let is_decided = match ask_about(context, &all).await {
            Some(answer) => unrecorded::decide(context, &undecided, &answer.unknown, containers).await,
            None => false,
        };
        if !is_decided {
            context.held.request_check(undecided);
        }
    } else if full && context.held.set(HashMap::new()) {
        tracing::info!(node = %context.worker.node, "no containers are held any more");
    }
}

#[derive(Default)]
struct ForeignContainers<'a> {
    moved: Vec<&'a Container>,
    unknown: Vec<&'a Container>,
}

async fn ask_about<'a>(
    context: &SessionContext,
    containers: &[&'a Container],
) -> Option<ForeignContainers<'a>> {
    let mut answer = ForeignContainers::default();
    let mut remaining: Vec<&Container> = containers.to_vec();
    while !remaining.is_empty() {
        let (now, later) = split_for_check(remaining, |container| (&container.pod, &container.assignment));
        let mut checked: Vec<(PodId, AssignmentId)> = now.iter().map(|container| container.key()).collect();
        checked.sort_unstable();
        checked.dedup();
        let outcome = beat::beat(context, &checked).await.ok()?;
        for container in now.into_iter().filter(|container| outcome.foreign.contains(&container.pod)) {
            match outcome.unknown.contains(&container.pod) {
                false => answer.moved.push(container),
                true => answer.unknown.push(container),
            }
        }
        remaining = later;
    }
    Some(answer)
}

fn split_for_check<T>(all: Vec<T>, key: impl Fn(&T) -> (&PodId, &AssignmentId)) -> (Vec<T>, Vec<T>) {
    let mut pods: HashMap<PodId, AssignmentId> = HashMap::new();
    all.into_iter().partition(|one| {
        let (pod, assignment) = key(one);
        match pods.get(pod) {
            Some(checked) => checked == assignment,
            None if pods.len() < MAX_CHECKS => {
                pods.insert(pod.clone(), assignment.clone());
                true
            }
            None => false,
        }
    })
}

/// If every pod here that must not run twice is this node's for the current master, heartbeats renew the
/// lease. If not, the foreign ones must be stopped first.
async fn confirm(context: &SessionContext, containers: &[Container]) {
    let may_run = |container: &&Container| container.state.may_run();
    let is_exclusive = |container: &&Container| container.on_disconnect == OnDisconnect::Stop;
    let exclusive = containers.iter().filter(may_run).filter(is_exclusive);
    let exclusive = exclusive.map(Container::key);
    let mut remaining: Vec<(PodId, AssignmentId)> =
        exclusive.chain(context.table.exclusive_assignments()).collect();
    remaining.sort_unstable();
    remaining.dedup();
    let mut first = None;
    loop {
        let (now, later) = split_for_check(remaining, |(pod, assignment)| (pod, assignment));
        let Ok(outcome) = beat::beat(context, &now).await else { return };
        if !outcome.foreign.is_empty() {
            return beat::settle(context, &now, &outcome);
        }
        let (sent, master) = *first.get_or_insert((outcome.sent, outcome.master_changed_at));
        if outcome.master_changed_at != master {
            return;
        }
        if later.is_empty() {
            context.link.set_confirmed_by(Some(master));
            return beat::renew_lease(context, sent, &outcome.redis);
        }
        remaining = later;
    }
}

fn remove_expired(context: &Arc<SessionContext>, containers: &[Container]) {
    let now = context.worker.now();
    let retention = context.worker.timings.ended_retention.as_millis() as u64;
    let before = BootInstant { millis: now.millis.saturating_sub(retention) };
    let expired = context.table.expire_ended(MAX_ENDED_KEPT, before);
    if expired.is_empty() {
        return;
    }
    for container in containers {
        if expired.contains(&container.key()) {
            remove(context, container.clone(), Why::EndedLongAgo);
        }
    }
}
