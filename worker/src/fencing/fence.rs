//! The fence: when the lease has expired, stops pods that must never run twice. Restores invariant 5.
//!
//! It needs no Redis. While the lease is expired it scans repeatedly, to catch containers whose start was in
//! flight at the expiry; only then can the lease be renewed. It runs as long as the worker process; if its
//! signs of life ([`crate::fencing::liveness`]) stop, the supervisor calls [`enforce`].

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use daemon::backoff::Backoff;
use daemon::clock::{BootInstant, Clock};
use engine::{Container, Runtime, RuntimeError};
use futures_util::future::OptionFuture;
use futures_util::stream;
use futures_util::{FutureExt, StreamExt};
use model::ids::{ClusterId, NodeName, PodId};
use model::node::timing::Timing;
use model::spec::OnDisconnect;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backup::pod_backup::PodBackup;
use crate::fencing::known_containers::{KnownContainers, must_stop};
use crate::fencing::lease::LeaseState;
use crate::fencing::lease_file::SavedLease;
use crate::handover::close_all::{close_all, cut_all, drain_and_stop};
use crate::handover::socket::ProxySocket;
use crate::node::engine_health::CheckedCall;
use crate::support::measure::{self, ContainerStopReason};
use crate::worker::Worker;

/// tokio's clock stops while the machine is suspended, unlike the lease's.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Interval while containers with a start in flight may still appear.
pub(crate) const RECHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Then scans become rare: Redis may be unavailable for hours.
const QUIET_AFTER: Duration = Duration::from_secs(3);
const MAX_LIST_WAIT: Duration = Duration::from_secs(1);
/// Between the last SIGKILL and the time when another node may start the pod.
pub(crate) const SAFETY_MARGIN: Duration = Duration::from_secs(2);
const MAX_LEFTOVER_GRACE: Duration = Duration::from_secs(1);
const MAX_PURGE_GRACE: Duration = Duration::from_secs(10);
/// Only the next lease waits for removals.
const REMOVE_CONCURRENCY: usize = 16;

/// Ends early only if `shutdown` comes first.
pub(crate) async fn run(worker: Arc<Worker>, shutdown: CancellationToken, startup_done: oneshot::Sender<()>) {
    let fence = async {
        if startup_fence(&worker, &shutdown).await {
            let _ended = startup_done.send(());
            watch(&worker).await;
        }
    };
    // This very task sends the signs of life: they stop when the fence hangs or panics.
    worker.liveness.while_running(&worker.config.timing, fence).await;
}

async fn watch(worker: &Worker) {
    let mut is_fencing = false;
    let mut last_found = Instant::now();
    loop {
        match worker.lease.state(worker.now()) {
            LeaseState::None => {
                is_fencing = false;
                tokio::time::sleep(POLL_INTERVAL.min(worker.config.timing.heartbeat)).await;
            }
            LeaseState::Valid(remaining) => {
                if is_fencing {
                    is_fencing = false;
                    tracing::info!(node = %worker.node, "the lease is valid again");
                }
                tokio::time::sleep(remaining.min(POLL_INTERVAL)).await;
            }
            LeaseState::Expired(deadline) => {
                if !is_fencing {
                    is_fencing = true;
                    last_found = Instant::now();
                    log_expiry(worker);
                }
                if !stop_expired(worker, deadline).await {
                    last_found = Instant::now();
                }
                tokio::time::sleep(recheck_after(last_found.elapsed())).await;
            }
        }
    }
}

fn log_expiry(worker: &Worker) {
    measure::fenced();
    tracing::error!(
        node = %worker.node,
        "no heartbeat has been answered for {:?}, the lease has expired: stopping pods with \
         `on_disconnect: stop`, because they may be started on other nodes; pods with `keep` go on",
        worker.config.timing.fence_after
    );
}

/// True if nothing was left to stop and no start is in flight.
async fn stop_expired(worker: &Worker, deadline: BootInstant) -> bool {
    let timing = &worker.config.timing;
    let cluster = worker.identity.cluster();
    let proxy = worker.proxy.as_deref();
    let saved = Some(&worker.backup);
    let scope = FenceScope { node: &worker.node, cluster: cluster.as_ref(), timing, proxy, saved };
    match enforce(&*worker.runtime, &scope, deadline, &*worker.clock, &worker.known).await {
        Ok(found) => worker.lease.mark_fenced(deadline) && found == 0,
        Err(error) => {
            tracing::error!(node = %worker.node, %error, "the fence could not stop all pods; retrying");
            false
        }
    }
}

fn recheck_after(quiet_for: Duration) -> Duration {
    if quiet_for > QUIET_AFTER { POLL_INTERVAL } else { RECHECK_INTERVAL }
}

pub(crate) struct FenceScope<'a> {
    pub(crate) node: &'a NodeName,
    pub(crate) cluster: Option<&'a ClusterId>,
    pub(crate) timing: &'a Timing,
    pub(crate) proxy: Option<&'a dyn ProxySocket>,
    pub(crate) saved: Option<&'a PodBackup>,
}

/// Returns the number of pods to stop. Stops the `known` ones while the engine does not list containers.
pub(crate) async fn enforce(
    runtime: &dyn Runtime,
    scope: &FenceScope<'_>,
    deadline: BootInstant,
    clock: &dyn Clock,
    known: &KnownContainers,
) -> Result<usize, RuntimeError> {
    let FenceScope { node, cluster, timing, proxy, saved } = *scope;
    let stop = async |containers: Vec<Container>| {
        if let Some(saved) = saved {
            saved.note_fenced(&containers);
        }
        for container in &containers {
            tracing::warn!(%node, pod = %container.pod, "the lease has expired: stopping the pod");
        }
        let all: Vec<_> = containers.iter().collect();
        let are_drained = close_all(proxy, &all, fence_drain(timing, deadline, clock.now())).await;
        let left = time_left(timing, deadline, clock.now());
        let stops = stop_all(runtime, &containers, ContainerStopReason::Fenced, left, known);
        let close = OptionFuture::from((!are_drained).then(|| cut_all(proxy, &all)));
        let (stopped, _) = tokio::join!(stops, close);
        stopped.map(|()| all.len())
    };
    let mut list = runtime.list_live(node);
    let listed = match tokio::time::timeout(MAX_LIST_WAIT, &mut list).await {
        Ok(Ok(listed)) => listed,
        Ok(Err(error)) => {
            stop(known.all()).await?;
            return Err(error);
        }
        Err(_) => {
            tracing::error!(%node, "the engine has not listed containers in {MAX_LIST_WAIT:?}: stopping the known ones");
            let (stopped, listed) = tokio::join!(stop(known.all()), list);
            stopped?;
            listed?
        }
    };
    let is_own = |container: &Container| container.is_of(cluster);
    stop(listed.into_iter().filter(is_own).filter(must_stop).collect()).await
}

/// Half of the time: the container often has something to save.
fn fence_drain(timing: &Timing, deadline: BootInstant, now: BootInstant) -> Duration {
    time_left(timing, deadline, now) / 2
}

fn time_left(timing: &Timing, deadline: BootInstant, now: BootInstant) -> Duration {
    let declared_dead = deadline.plus(timing.dead_after.saturating_sub(timing.fence_after));
    declared_dead.since(now).saturating_sub(SAFETY_MARGIN)
}

async fn stop_all(
    runtime: &dyn Runtime,
    containers: &[Container],
    reason: ContainerStopReason,
    left: Duration,
    known: &KnownContainers,
) -> Result<(), RuntimeError> {
    let ended = runtime.end_all(containers, Instant::now() + left).await;
    let remove = async |container: Container| {
        runtime.stop(&container.handle, Duration::ZERO).await?;
        known.remove(&container.handle);
        measure::stop(reason);
        Ok(())
    };
    let removals = stream::iter(containers.to_vec()).map(remove);
    let removed: Vec<_> = removals.buffer_unordered(REMOVE_CONCURRENCY).collect().await;
    removed.into_iter().collect::<Result<(), _>>().map_err(|error| ended.err().unwrap_or(error))
}

/// Returns false at a `shutdown`. Same below.
async fn startup_fence(worker: &Worker, shutdown: &CancellationToken) -> bool {
    match worker.lease.load_saved() {
        SavedLease::Lease(lease) if worker.now() < lease.deadline => {
            worker.lease.take_over(lease);
            return true;
        }
        SavedLease::Lease(_) => {
            tracing::info!(node = %worker.node, "the lease of the previous worker process has expired");
        }
        SavedLease::Unusable(why) => {
            tracing::info!(
                node = %worker.node,
                "no lease of a previous worker process ({why}): pods with `on_disconnect: stop` that it has left are stopped"
            );
        }
    }
    stop_unleased(worker, shutdown).await
}

pub(crate) async fn stop_unleased(worker: &Worker, shutdown: &CancellationToken) -> bool {
    let must_stop = |container: &Container| container.on_disconnect == OnDisconnect::Stop;
    stop_leftovers(worker, shutdown, ContainerStopReason::Fenced, must_stop, MAX_LEFTOVER_GRACE).await
}

/// Pods that moved after this node was declared dead. Those without a record have moved nowhere: the next
/// session decides about them.
pub(crate) async fn purge(worker: &Worker, shutdown: &CancellationToken) -> bool {
    let reason = ContainerStopReason::NotAssigned;
    // These do not wait for Redis.
    let is_exclusive = |one: &Container| one.on_disconnect == OnDisconnect::Stop;
    if !stop_leftovers(worker, shutdown, reason, is_exclusive, MAX_PURGE_GRACE).await {
        return false;
    }
    let Some(recorded) = recorded_pods(worker, shutdown).await else { return false };
    let has_moved = |one: &Container| recorded.contains(&one.pod);
    stop_leftovers(worker, shutdown, reason, has_moved, MAX_PURGE_GRACE).await
}

async fn recorded_pods(worker: &Worker, shutdown: &CancellationToken) -> Option<HashSet<PodId>> {
    retry(shutdown, || async {
        let listed = worker.list_live().await.ok()?;
        let pods: HashSet<PodId> = listed.into_iter().map(|container| container.pod).collect();
        let pods: Vec<PodId> = pods.into_iter().collect();
        let records = worker.store.pods(&pods).await.ok()?.found();
        Some(records.into_iter().map(|record| record.id).collect())
    })
    .await
}

async fn stop_leftovers(
    worker: &Worker,
    shutdown: &CancellationToken,
    reason: ContainerStopReason,
    must_stop: impl Fn(&Container) -> bool,
    max_grace: Duration,
) -> bool {
    let attempt = || async {
        let containers = worker.list_live().await?;
        let found: Vec<_> = containers.into_iter().filter(|container| must_stop(container)).collect();
        if !found.is_empty() {
            let count = found.len();
            tracing::warn!(node = %worker.node, count, ?reason, "stopping leftover containers");
            if matches!(reason, ContainerStopReason::Fenced) {
                worker.backup.note_fenced(&found);
            }
        }
        let stop = |containers: Vec<Container>| {
            let runtime = &*worker.runtime;
            async move { stop_all(runtime, &containers, reason, max_grace, &worker.known).await }.boxed()
        };
        let found: Vec<_> = found.iter().collect();
        drain_and_stop(worker.proxy.as_deref(), &found, max_grace, stop).await
    };
    let stopped = retry(shutdown, || async {
        let result = attempt().await;
        worker.engine.record(CheckedCall::List, &result);
        result.ok()
    });
    stopped.await.is_some()
}

/// Until an attempt returns a value; `None` at a `shutdown`.
async fn retry<T, F: Future<Output = Option<T>>>(
    shutdown: &CancellationToken,
    attempt: impl Fn() -> F,
) -> Option<T> {
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
    let attempts = async {
        loop {
            if let Some(value) = attempt().await {
                return value;
            }
            tokio::time::sleep(backoff.next()).await;
        }
    };
    shutdown.run_until_cancelled(attempts).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fence_looks_less_often_once_nothing_appears_any_more_but_never_rarely() {
        assert_eq!(recheck_after(Duration::ZERO), RECHECK_INTERVAL);
        assert_eq!(recheck_after(QUIET_AFTER), RECHECK_INTERVAL);
        assert_eq!(recheck_after(Duration::from_secs(3600)), POLL_INTERVAL);
    }

    #[test]
    fn a_stopped_container_is_gone_before_its_pod_may_start_elsewhere() {
        let seconds = Duration::from_secs;
        let at = |seconds: u64| BootInstant { millis: seconds * 1000 };
        let timing = Timing::default();
        for (now, expected) in [(100, 3), (102, 1), (103, 0), (500, 0)] {
            assert_eq!(time_left(&timing, at(100), at(now)), seconds(expected), "{now}");
        }
        assert_eq!(fence_drain(&timing, at(100), at(100)), seconds(3) / 2);
        assert_eq!(fence_drain(&timing, at(100), at(103)), Duration::ZERO);
        let short = Timing { heartbeat: seconds(1), fence_after: seconds(2), dead_after: seconds(3) };
        assert_eq!(time_left(&short, at(100), at(100)), Duration::ZERO);
    }
}
