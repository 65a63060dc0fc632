//! Registers this node with the cluster, which begins a session.

use std::time::Duration;

use daemon::backoff::Backoff;
use daemon::config::RuntimeKind;
use engine::EngineInfo;
use model::ids::ClusterId;
use model::node::NodeInfo;
use model::time::rfc3339;
use store::{Claimant, KnownCluster, NameTaken, Registration, Session};
use tokio_util::sync::CancellationToken;

use crate::answer::recovery;
use crate::error::WorkerError;
use crate::fencing::fence;
use crate::node::engine_health::CheckedCall;
use crate::node::machine;
use crate::session::name_watch::{NameVerdict, NameWatch, takes_over_after};
use crate::session::unknown_cluster::{self, UnknownCluster};
use crate::worker::Worker;

const DRAINING_RETRY: Duration = Duration::from_millis(300);
const MAX_COUNT_WAIT: Duration = Duration::from_secs(1);
/// Containers left then are found again as foreign.
const PURGE_TIMEOUT: Duration = Duration::from_secs(30);

/// `None` at `shutdown`.
///
/// # Errors
/// If another worker has the name and is alive.
pub(crate) async fn register(
    worker: &Worker,
    shutdown: &CancellationToken,
) -> Result<Option<Session>, WorkerError> {
    let timing = &worker.config.timing;
    let claimant = Claimant {
        holder: worker.identity.holder(),
        takes_over_after: takes_over_after(timing),
        timing: *timing,
    };
    let mut name_watch = NameWatch::default();
    let Some(info) = node_info(worker, shutdown).await else { return Ok(None) };
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    let mut is_purged = false;
    let mut hold = UnknownCluster::default();
    let mut known = worker.identity.cluster();
    let own_labels = worker.backup.own_labels();
    // People look at a worker as soon as it holds.
    let mut containers = if known.is_some() { count_containers(worker).await } else { None };
    loop {
        let sent = worker.now();
        let known_cluster = known.as_ref().map(|id| KnownCluster {
            id,
            containers: containers.unwrap_or_default(),
            own_labels: own_labels.as_ref(),
        });
        let result = tokio::select! {
            () = shutdown.cancelled() => return Ok(None),
            result = worker.store.register(&worker.node, &info, claimant, known_cluster) => result,
        };
        let wait = match result {
            Ok(Registration::Registered { session, requeued, cluster }) => {
                worker.redis_log.succeeded();
                hold.end(worker);
                tracing::info!(node = %worker.node, %cluster, requeued, runtime = info.runtime, "registered");
                join(worker, &cluster, shutdown).await;
                return Ok(Some(session));
            }
            Ok(Registration::Held { found, redis }) => {
                worker.redis_log.succeeded();
                worker.lease.prolong(worker.now(), sent.plus(timing.fence_after), &redis);
                containers = count_containers(worker).await.or(containers);
                if found.is_some() && containers == Some(0) {
                    known = None;
                    continue;
                }
                if let Some(cluster) = &known {
                    hold.say(worker, cluster, containers.unwrap_or_default(), found.as_ref());
                    recovery::answer(worker).await;
                }
                unknown_cluster::RETRY.min(timing.heartbeat)
            }
            Ok(Registration::Draining) => {
                worker.redis_log.succeeded();
                if !is_purged {
                    is_purged = true;
                    tracing::info!(
                        node = %worker.node,
                        "this node was declared dead and its pods are still being moved: removing its \
                         containers, then registering again"
                    );
                    purge(worker, shutdown).await;
                }
                DRAINING_RETRY
            }
            Ok(Registration::Taken(taken)) => {
                worker.redis_log.succeeded();
                watch_name(worker, &mut name_watch, &taken)?
            }
            Err(error) => {
                worker.redis_log.failed(&error);
                backoff.next()
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return Ok(None),
            () = tokio::time::sleep(wait) => {}
        }
    }
}

async fn count_containers(worker: &Worker) -> Option<u64> {
    let listed = tokio::time::timeout(MAX_COUNT_WAIT, worker.list()).await.ok()?;
    listed.ok().map(|containers| containers.len() as u64)
}

fn watch_name(worker: &Worker, watch: &mut NameWatch, taken: &NameTaken) -> Result<Duration, WorkerError> {
    let (node, since) = (&worker.node, rfc3339(taken.since));
    let NameTaken { silence, left, .. } = taken;
    if watch.is_new() {
        tracing::warn!(
            %node, since, ?silence,
            "another worker has registered under this name: this one ends if further heartbeats of that one \
             arrive, and registers if none does for another {left:.0?}"
        );
    }
    match watch.look(taken, &worker.config.timing) {
        NameVerdict::Wait(wait) => Ok(wait),
        NameVerdict::OtherIsAlive => Err(WorkerError::NameTaken { node: node.clone(), since }),
    }
}

/// In a cluster new to this worker, containers may be those of an earlier worker whose files were lost.
async fn join(worker: &Worker, cluster: &ClusterId, shutdown: &CancellationToken) {
    if !worker.identity.join(cluster) {
        return;
    }
    worker.backup.set_own_labels(None);
    if !worker.is_leased() {
        fence::stop_unleased(worker, shutdown).await;
    }
}

pub(crate) async fn purge(worker: &Worker, shutdown: &CancellationToken) {
    if tokio::time::timeout(PURGE_TIMEOUT, fence::purge(worker, shutdown)).await.is_err() {
        tracing::error!(
            node = %worker.node,
            "not all containers could be removed within {PURGE_TIMEOUT:?}; going on, removal is retried later"
        );
    }
}

async fn node_info(worker: &Worker, shutdown: &CancellationToken) -> Option<NodeInfo> {
    let EngineInfo { runtime, version: engine_version, id: engine_id } = tokio::select! {
        () = shutdown.cancelled() => return None,
        info = engine_info(worker) => info,
    };
    let volumes = worker.runtime.volumes_directory().await;
    let machine = machine::resources(volumes.as_deref().unwrap_or(&worker.config.data_dir));
    Some(NodeInfo {
        labels: worker.config.labels.clone(),
        capacity: worker.config.capacity(machine),
        reserved: worker.config.reserved(machine),
        runtime: runtime.to_owned(),
        engine_version,
        engine_id,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings: Some(machine::settings(&worker.config)),
    })
}

/// A worker without a known engine waits: this one may be on another machine than the volumes of this name.
async fn engine_info(worker: &Worker) -> EngineInfo {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    loop {
        let answer = worker.runtime.ping().await;
        worker.engine.record(CheckedCall::Ping, &answer);
        let (runtime, known) = (worker.config.runtime, worker.identity.engine());
        // Only Docker's engine has an id.
        let known = known.or_else(|| (runtime != RuntimeKind::Docker).then(String::new));
        match (answer, known) {
            (Ok(info), _) => {
                worker.identity.note_engine(&info.id);
                return info;
            }
            (Err(_), Some(id)) => {
                return EngineInfo { runtime: configured_runtime(runtime), version: String::new(), id };
            }
            (Err(_), None) => tokio::time::sleep(backoff.next()).await,
        }
    }
}

fn configured_runtime(kind: RuntimeKind) -> &'static str {
    match kind {
        RuntimeKind::Docker => "docker",
        RuntimeKind::Process => "process",
        RuntimeKind::Sim => "sim",
    }
}
