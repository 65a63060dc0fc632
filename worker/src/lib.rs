//! The worker: runs the pods assigned to this node on its container engine and reports their state.
//!
//! [`run`] is the daemon. The worker registers with the cluster, which begins a session (`session`), and runs
//! its loops until the process ends or the cluster gives up on it. What the loops share is in `context`. Each
//! loop is one file that names the invariant it restores: `heartbeat`, `claim`, `ack`, `reconcile`. The
//! `fence` watches the lease over all sessions; the [`supervisor`], in the parent process, does so when this
//! process cannot. Decisions are pure functions: `step`, `policy`.
//!
//! Nothing important is only in memory: payloads stay in the in-flight list (`rq`) until their pods run, and
//! containers are found again by their labels.

mod ack;
mod ack_queue;
mod actions;
mod admission;
mod answer_login_check;
mod answer_recovery;
mod beat;
mod broken_records;
mod change_log;
mod channels;
mod claim;
mod cluster_logins;
mod container_files;
mod context;
mod dependencies;
mod doubted;
mod ended_pods;
mod ended_runs;
mod engine_health;
mod engine_hints;
mod env;
mod error;
mod fence;
mod fenced_signal;
mod file_store;
mod find_container;
mod first_start;
mod former_names;
mod garbage;
mod handover;
pub mod health;
mod health_checks;
mod heartbeat;
mod held_pods;
mod hold;
mod identity;
mod image_checks;
mod known_containers;
mod lease;
mod lease_file;
mod lines;
mod link_state;
mod liveness;
mod log_answer;
mod log_throttle;
mod logs;
mod lost_reports;
pub mod machine;
mod measure;
mod name_watch;
mod node_fault;
mod node_problems;
mod pod_images;
mod pod_network;
mod policy;
mod prepare;
mod psi;
mod rare_log;
mod reconcile;
mod reconcile_pass;
mod recover;
mod register;
mod registrations;
mod reload;
mod remove;
mod report_directory;
mod report_problems;
mod retry;
mod save_pods;
mod saved_containers;
mod saved_pods;
mod session;
mod shared_directory;
mod start;
mod step;
mod stop_order;
pub mod supervisor;
mod table;
mod tasks;
#[cfg(test)]
mod tests;
mod text;
mod throttle;
mod timings;
mod unknown_pods;
mod unlabelled;
mod unrecorded;
mod usage;
mod volume_claims;
mod volume_sizes;
mod volumes;
mod wakeups;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use common::clock::{BootClock, Clock};
use common::config::{Config, RuntimeKind};
use common::ids::NodeName;
use common::store::{LinkOptions, Store};
use engine::Runtime;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::change_log::RedisLog;
use crate::identity::IdentityFiles;
use crate::worker::Worker;

pub use crate::env::WorkerEnv;
pub use crate::error::WorkerError;
pub use crate::former_names::OtherLease;
pub use crate::handover::socket::{ProxySocket, ProxyStream};
pub use crate::identity::{IdentityStore, cluster_of};
pub use crate::lease_file::{LeaseGrant, LeaseStore, SavedLease};
pub use crate::liveness::LivenessPipe;
pub use crate::node_problems::NodeProblems;
pub use crate::saved_pods::PodStore;
pub use crate::timings::WorkerTimings;

/// Runs this node's worker, or with the `sim` runtime all simulated workers of this process, until
/// `shutdown`. Pods are left running; pods that are being started stay in the queue for the next worker
/// process. The shutdown takes up to ten seconds.
///
/// # Errors
/// If the worker cannot start, or cannot go on.
pub async fn run(config: Arc<Config>, shutdown: CancellationToken) -> Result<(), WorkerError> {
    run_supervised(config, LivenessPipe::none(), NodeProblems::default(), shutdown).await
}

/// Like [`run`], and sends signs of life to the supervisor process at the other end of `liveness`. What is
/// noted in `problems` is reported as well.
///
/// # Errors
/// If the worker cannot start, or cannot go on.
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
    session::run(Arc::new(Worker { liveness, problems, ..worker }), shutdown).await
}

/// Runs one worker on this machine, with the given store and container runtime, until `shutdown`.
///
/// # Errors
/// If the worker cannot start, or cannot go on.
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

/// Runs one worker in the given environment, which may be simulated, until `shutdown`.
///
/// # Errors
/// If the worker cannot go on.
pub async fn run_in_env(
    config: Arc<Config>,
    store: Store,
    env: WorkerEnv,
    timings: WorkerTimings,
    shutdown: CancellationToken,
) -> Result<(), WorkerError> {
    session::run(Arc::new(Worker::new(config, store, env, timings, Arc::default())), shutdown).await
}

/// Runs the workers `<node>-1` … `<node>-N` with one engine and one connection to Redis. The first that
/// cannot go on ends all.
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
        workers.spawn(session::run(Arc::new(worker), stop_all.clone()));
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

/// Describes the metrics of the workers of this process: units and help texts for the installed recorder.
pub fn describe_metrics() {
    measure::describe();
}

/// Returns why this node's worker holds: its Redis does not know its cluster. `None` if it does not hold.
pub fn hold_reason(config: &Config) -> Option<String> {
    IdentityFiles::of(config).hold()
}

/// Returns for how much longer the lease of this node's worker is valid, in whatever process it runs. Reads
/// the lease file only; simulated workers have none.
///
/// # Errors
/// If the lease has expired or there is none, as a sentence.
pub fn health(config: &Config) -> Result<Duration, String> {
    let boot_id = lease_file::boot_id()
        .map_err(|error| format!("the boot id of this machine cannot be read: {error}"))?;
    let now = BootClock.now();
    if let Some(why) = hold_reason(config) {
        return Err(why);
    }
    match lease_file::read(&lease_file::path(config), &boot_id) {
        SavedLease::Lease(LeaseGrant { deadline, .. }) if now < deadline => Ok(deadline.since(now)),
        SavedLease::Lease(LeaseGrant { deadline, .. }) => Err(format!(
            "no heartbeat of {} has been answered recently: its lease ran out {:?} ago",
            config.node,
            now.since(deadline)
        )),
        SavedLease::Unusable(why) => Err(format!("worker {} has no lease: {why}", config.node)),
    }
}
