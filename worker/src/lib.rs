//! The worker: runs the pods assigned to this node on its container engine and reports their state.
//!
//! [`run`] is the daemon. `session` registers and runs the loops; `start` turns payloads into running pods,
//! `running` reconciles them, `handover` reports them to the proxy, `answer` serves people's requests, `node`
//! manages the machine, `backup` saves the running pods. `fencing` enforces the lease across sessions; the
//! [`supervisor`] does so when this process cannot. Decisions are pure, such as `running::step`.
//!
//! Nothing important is only in memory: payloads stay in the in-flight list (`rq`) until their pods run, and
//! containers are found again by their labels.
//!
//! Tests: beside the code, schedules, scenarios

mod answer;
mod backup;
mod env;
mod error;
mod fencing;
mod handover;
mod node;
mod running;
mod session;
mod start;
mod support;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use daemon::clock::{BootClock, Clock};
use daemon::config::{Config, RuntimeKind};
use engine::Runtime;
use model::ids::NodeName;
use store::{LinkOptions, Store};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::session::identity::IdentityFiles;
use crate::session::sessions;
use crate::support::change_log::RedisLog;
use crate::worker::Worker;

pub use crate::backup::pod_backup::PodStore;
pub use crate::env::WorkerEnv;
pub use crate::error::WorkerError;
pub use crate::fencing::lease_file::{LeaseGrant, LeaseStore, SavedLease};
pub use crate::fencing::liveness::LivenessPipe;
pub use crate::fencing::other_lease::OtherLease;
pub use crate::fencing::supervisor;
pub use crate::handover::socket::{ProxySocket, ProxyStream};
pub use crate::node::machine;
pub use crate::node::node_problems::NodeProblems;
pub use crate::session::identity::{IdentityStore, cluster_of};
pub use crate::support::timings::WorkerTimings;

/// The shutdown takes up to ten seconds. Pods are left running; those that are starting stay in the queue for
/// the next worker process.
pub async fn run(config: Arc<Config>, shutdown: CancellationToken) -> Result<(), WorkerError> {
    run_supervised(config, LivenessPipe::none(), NodeProblems::default(), shutdown).await
}

/// With a supervisor at the other end of `liveness`.
pub async fn run_supervised(
    config: Arc<Config>,
    liveness: LivenessPipe,
    problems: NodeProblems,
    shutdown: CancellationToken,
) -> Result<(), WorkerError> {
    describe_metrics();
    let store = Store::new(config.redis.clone(), LinkOptions::default());
    let runtime = env::runtime(&config)?;
    #[cfg(debug_assertions)]
    let runtime: Arc<dyn Runtime> = Arc::new(engine::failpoints::FailpointRuntime(runtime));
    if config.runtime == RuntimeKind::Sim && config.sim_workers > 1 {
        return run_many(config, store, runtime, shutdown).await;
    }
    let env = WorkerEnv::real(&config, runtime)?;
    if (env.pressure)().is_none() {
        tracing::info!(
            "this kernel reports no pressure (psi=1 on its command line): placement counts pods and reservations here"
        );
    }
    let worker = Worker::new(config, store, env, WorkerTimings::default(), Arc::default());
    sessions::run(Arc::new(Worker { liveness, problems, ..worker }), shutdown).await
}

pub async fn run_with(
    config: Arc<Config>,
    store: Store,
    runtime: Arc<dyn Runtime>,
    shutdown: CancellationToken,
) -> Result<(), WorkerError> {
    describe_metrics();
    let env = WorkerEnv::real(&config, runtime)?;
    run_in_env(config, store, env, WorkerTimings::default(), shutdown).await
}

/// The environment may be simulated.
pub async fn run_in_env(
    config: Arc<Config>,
    store: Store,
    env: WorkerEnv,
    timings: WorkerTimings,
    shutdown: CancellationToken,
) -> Result<(), WorkerError> {
    sessions::run(Arc::new(Worker::new(config, store, env, timings, Arc::default())), shutdown).await
}

/// Workers `<node>-1` … `<node>-N`, with one connection to Redis. The first failure ends all.
async fn run_many(
    config: Arc<Config>,
    store: Store,
    runtime: Arc<dyn Runtime>,
    shutdown: CancellationToken,
) -> Result<(), WorkerError> {
    let redis_log = Arc::<RedisLog>::default();
    let stop_all = shutdown.child_token();
    let mut workers = JoinSet::new();
    for number in 1..=config.sim_workers {
        let node = NodeName::new(format!("{}-{number}", config.node))?;
        let config = Arc::new(Config { node, ..(*config).clone() });
        let env = WorkerEnv { pod_store: PodStore::Nowhere, ..WorkerEnv::real(&config, runtime.clone())? };
        let worker = Worker::new(config, store.clone(), env, WorkerTimings::default(), redis_log.clone());
        workers.spawn(sessions::run(Arc::new(worker), stop_all.clone()));
    }
    let mut result = Ok(());
    while let Some(ended) = workers.join_next().await {
        let ended = ended.unwrap_or_else(|_| Err(WorkerError::Broken { node: config.node.clone() }));
        if ended.is_err() && result.is_ok() {
            result = ended;
            stop_all.cancel();
        }
    }
    result
}

pub fn describe_metrics() {
    support::measure::describe();
}

pub fn hold_reason(config: &Config) -> Option<String> {
    IdentityFiles::of(config).hold()
}

/// The remaining validity of the lease, in any process.
///
/// # Errors
/// A sentence, if the lease has expired or there is none.
pub fn health(config: &Config) -> Result<Duration, String> {
    let boot_id = fencing::lease_file::boot_id()
        .map_err(|error| format!("the boot id of this machine cannot be read: {error}"))?;
    let now = BootClock.now();
    if let Some(why) = hold_reason(config) {
        return Err(why);
    }
    match fencing::lease_file::read(&fencing::lease_file::path(config), &boot_id) {
        SavedLease::Lease(LeaseGrant { deadline, .. }) if now < deadline => Ok(deadline.since(now)),
        SavedLease::Lease(LeaseGrant { deadline, .. }) => Err(format!(
            "no heartbeat of {} has been answered recently: its lease ran out {:?} ago",
            config.node,
            now.since(deadline)
        )),
        SavedLease::Unusable(why) => Err(format!("worker {} has no lease: {why}", config.node)),
    }
}
