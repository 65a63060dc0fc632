//! What pods wait for before they are started: the services that theirs depends on.
//!
//! The first start of a pod waits in [`crate::start`]. Pods whose containers have all ended while no worker
//! looked, as when their machine was down, wait as well, before their containers are started again: they are
//! *held* here. A container that ends while this worker looks is started again without a wait.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::ids::{AssignmentId, PodId, ServiceName};
use common::spec::Dependency;
use common::store::StoreError;
use tokio::time::Instant;

use crate::context::SessionContext;
use crate::step::DesiredState;
use crate::table::ManagedPod;

/// How often a pod that waits looks again.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// What was read less than this ago is not read again.
const FRESH: Duration = Duration::from_millis(900);
/// The time after which a service that no pod has asked about is not read any more.
const FORGET_AFTER: Duration = Duration::from_secs(5);

/// The reason of a pod that waits.
pub(crate) const WAITING: &str = "WaitingForDependencies";

/// Reads what services wait for: together for all pods of this worker that ask at about the same time.
#[derive(Default)]
pub(crate) struct DependencyGate {
    /// Services that pods ask about, for the next read.
    asked: Mutex<HashSet<ServiceName>>,
    /// What was read last.
    known: Mutex<HashMap<ServiceName, KnownObstacle>>,
    /// Locked during a read, so that those who ask meanwhile share the next one.
    reading: tokio::sync::Mutex<()>,
    /// Pods that are held and have a task.
    watched: Mutex<HashSet<PodId>>,
}

struct KnownObstacle {
    read_at: Instant,
    asked_at: Instant,
    /// What is missing; `None` if pods may start.
    obstacle: Option<String>,
}

impl DependencyGate {
    /// Returns what the pods of a service still wait for, in a sentence.
    pub(crate) async fn obstacle(
        &self,
        context: &SessionContext,
        service: &ServiceName,
    ) -> Result<Option<String>, StoreError> {
        if let Some(obstacle) = self.fresh(service) {
            return Ok(obstacle);
        }
        self.asked().insert(service.clone());
        let _reading = self.reading.lock().await;
        if let Some(obstacle) = self.fresh(service) {
            self.asked().remove(service);
            return Ok(obstacle);
        }
        let mut services = self.waiting();
        services.insert(service.clone());
        services.extend(self.asked().drain());
        let services: Vec<ServiceName> = services.into_iter().collect();
        let silent_after = context.worker.config.timing.dead_after.as_millis() as u64;
        let now = Instant::now();
        let read = context.worker.store.dependencies(&services, silent_after).await?;
        let mut known = self.known();
        let mut answer = None;
        for (name, dependencies) in services.into_iter().zip(read) {
            let obstacle = missing(&dependencies);
            let asked_at = if name == *service {
                answer.clone_from(&obstacle);
                now
            } else {
                known.get(&name).map_or(now, |found| found.asked_at)
            };
            known.insert(name, KnownObstacle { read_at: now, asked_at, obstacle });
        }
        Ok(answer)
    }

    /// Returns what was read a moment ago: what is missing, if anything is.
    fn fresh(&self, service: &ServiceName) -> Option<Option<String>> {
        let now = Instant::now();
        let mut known = self.known();
        let found = known.get_mut(service).filter(|found| now.duration_since(found.read_at) < FRESH)?;
        found.asked_at = now;
        Some(found.obstacle.clone())
    }

    /// Forgets services that no pod has asked about for a while, and returns those whose pods wait.
    fn waiting(&self) -> HashSet<ServiceName> {
        let now = Instant::now();
        let mut known = self.known();
        known.retain(|_, found| now.duration_since(found.asked_at) < FORGET_AFTER);
        let waiting = known.iter().filter(|(_, found)| found.obstacle.is_some());
        waiting.map(|(name, _)| name.clone()).collect()
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<ServiceName, KnownObstacle>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked(&self) -> std::sync::MutexGuard<'_, HashSet<ServiceName>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watched(&self) -> std::sync::MutexGuard<'_, HashSet<PodId>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns all that is missing, in a sentence.
fn missing(dependencies: &[Dependency]) -> Option<String> {
    let obstacles: Vec<String> = dependencies.iter().filter_map(Dependency::obstacle).collect();
    (!obstacles.is_empty()).then(|| obstacles.join("; "))
}

/// Holds all managed pods of services: nothing runs on this machine any more, and no worker saw it end.
pub(crate) fn hold_all(context: &SessionContext, pods: &[ManagedPod]) {
    for managed in pods {
        if managed.service.is_some() && managed.desired == DesiredState::Run {
            context.table.update(&managed.payload.id, &managed.assignment, |managed| {
                managed.held.get_or_insert_default();
            });
        }
    }
    context.wakeups.request_reconcile();
}

/// Begins to look after the pods that are held.
pub(crate) fn watch_held(context: &Arc<SessionContext>, pods: &[ManagedPod]) {
    for managed in pods {
        let pod = &managed.payload.id;
        let Some(service) = managed.service.clone().filter(|_| managed.held.is_some()) else { continue };
        if context.dependencies.watched().insert(pod.clone()) {
            let (pod, assignment) = (pod.clone(), managed.assignment.clone());
            context.tasks.spawn(watch(context.clone(), pod, assignment, service));
        }
    }
}

/// Looks after one pod until nothing is missing any more, or until it is not held for another reason.
async fn watch(context: Arc<SessionContext>, pod: PodId, assignment: AssignmentId, service: ServiceName) {
    let is_held = || {
        let managed = context.table.get(&pod).filter(|managed| managed.assignment == assignment);
        managed.is_some_and(|managed| managed.held.is_some() && managed.desired == DesiredState::Run)
    };
    while is_held() {
        match context.dependencies.obstacle(&context, &service).await {
            Ok(obstacle) => note(&context, &pod, &assignment, obstacle),
            // The wait goes on; what is reported stays.
            Err(error) => context.worker.redis_log.failed(&error),
        }
        if !is_held() {
            break;
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = context.tasks.stopping().cancelled() => break,
        }
    }
    context.dependencies.watched().remove(&pod);
}

fn note(context: &SessionContext, pod: &PodId, assignment: &AssignmentId, obstacle: Option<String>) {
    let is_known = context.table.get(pod).is_none_or(|managed| managed.held == obstacle);
    if is_known {
        return;
    }
    match &obstacle {
        Some(message) => tracing::warn!(%pod, message, "the containers of the pod are not started again yet"),
        None => tracing::info!(%pod, "what the pod depends on is there: starting its containers again"),
    }
    context.table.update(pod, assignment, |managed| {
        managed.held = obstacle;
        managed.is_reported = false;
    });
    context.wakeups.request_reconcile();
}
