//! The worker: makes what its node's queues say true on an engine, and says so.
//!
//! [`run`] is the daemon. A worker has lives (`life`): it registers, looks at what runs here, and serves its loops
//! until the process ends or the cluster gives up on it. The loops, a file each: `heartbeat` (the lease, and what is to
//! be stopped), `claim` (payloads from the queue), `start` (one pod's start), `ack` (what runs), `supervise` (what runs
//! against what should). `fence` guards the lease over all lives. Decisions are pure: `step`, `policy`, `backoff`.
//!
//! Nothing that matters is in memory only: payloads are in `rq` until they run, what runs is found again by its labels.

mod ack;
mod act;
mod adopt;
mod backoff;
mod claim;
mod fence;
mod heartbeat;
mod lease;
mod life;
mod logs;
pub mod machine;
mod policy;
mod psi;
mod remove;
pub mod runtime;
mod start;
mod step;
mod strangers;
mod supervise;
mod table;
#[cfg(test)]
mod tests;
mod trouble;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use common::clock::{BootClock, Clock};
use common::config::{Config, RuntimeKind};
use common::ids::{InvalidName, NodeName};
use common::store::{LinkOptions, Store};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::lease::{Found, Lease};
use crate::runtime::docker::DockerRuntime;
use crate::runtime::process::ProcessRuntime;
use crate::runtime::sim::{SimOptions, SimRuntime};
use crate::runtime::{Runtime, RuntimeError};
use crate::trouble::Trouble;
use crate::worker::{Engine, Pace, Worker};

/// Why a worker can not start, or can not go on.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// Its lease has no place to be.
    #[error(
        "the lease of {node} can not be kept in {}: {source}; make the directory writable or set KUBELEET_STATE_DIR",
        path.display()
    )]
    StateDir {
        /// The worker.
        node: NodeName,
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Plain processes are not confined; the operator has to say that pods may be some.
    #[error(
        "the process runtime runs pods as plain processes of this machine, without confinement; set \
         KUBELEET_ALLOW_PROCESSES=true if that is meant, or KUBELEET_RUNTIME=docker"
    )]
    ProcessesNotAllowed,
    /// The engine's address can not be meant.
    #[error("the engine can not be used: {0}; check DOCKER_HOST")]
    Runtime(#[from] RuntimeError),
    /// The name of one of many simulated workers is none.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// Another worker registered under this name.
    #[error(
        "another worker registered as {node}; two workers can not share a name: give one of them another KUBELEET_NODE \
         (its pods were left running)"
    )]
    Replaced {
        /// The name.
        node: NodeName,
    },
    /// A loop panicked; its words are in the log.
    #[error("worker {node} is broken: one of its loops panicked, see the log; start it again")]
    Broken {
        /// The worker.
        node: NodeName,
    },
}

/// Runs this node's worker, or with the `sim` runtime all simulated workers of this process, until `shutdown`. Pods are
/// left running; what was being started is in the queue of the next life. Takes up to ten seconds to end.
pub async fn run(config: Arc<Config>, shutdown: CancellationToken) -> Result<(), WorkerError> {
    let store = Store::new(config.redis.clone(), LinkOptions::default());
    let runtime: Arc<dyn Runtime> = match config.runtime {
        RuntimeKind::Docker => Arc::new(DockerRuntime::connect(config.docker_host.as_deref())?),
        RuntimeKind::Process if config.policy.processes => {
            Arc::new(ProcessRuntime::new(config.data_dir.clone()))
        }
        RuntimeKind::Process => return Err(WorkerError::ProcessesNotAllowed),
        RuntimeKind::Sim => Arc::new(SimRuntime::new(SimOptions::default())),
    };
    #[cfg(debug_assertions)]
    let runtime: Arc<dyn Runtime> = Arc::new(runtime::failing::Failing(runtime));
    if config.runtime == RuntimeKind::Sim && config.sim_workers > 1 {
        return run_many(config, store, runtime, shutdown).await;
    }
    run_with(config, store, runtime, shutdown).await
}

/// Runs one worker with these hands.
pub async fn run_with(
    config: Arc<Config>,
    store: Store,
    runtime: Arc<dyn Runtime>,
    shutdown: CancellationToken,
) -> Result<(), WorkerError> {
    let redis = Arc::new(Trouble::of("talking to Redis"));
    let worker = worker(config, store, runtime, Arc::new(BootClock), Pace::default(), redis)?;
    life::run(Arc::new(worker), shutdown).await
}

/// `<node>-1` … `<node>-N` over one engine and one connection. The first that can not go on ends all.
async fn run_many(
    config: Arc<Config>,
    store: Store,
    runtime: Arc<dyn Runtime>,
    shutdown: CancellationToken,
) -> Result<(), WorkerError> {
    let redis = Arc::new(Trouble::of("talking to Redis"));
    let together = shutdown.child_token();
    let mut workers = JoinSet::new();
    for number in 1..=config.sim_workers {
        let node = NodeName::new(format!("{}-{number}", config.node))?;
        let config = Arc::new(Config { node, ..(*config).clone() });
        let (store, runtime, clock) = (store.clone(), runtime.clone(), Arc::new(BootClock));
        let worker = worker(config, store, runtime, clock, Pace::default(), redis.clone())?;
        workers.spawn(life::run(Arc::new(worker), together.clone()));
    }
    let mut result = Ok(());
    while let Some(ended) = workers.join_next().await {
        let ended = ended.unwrap_or_else(|_| Err(WorkerError::Broken { node: config.node.clone() }));
        if ended.is_err() && result.is_ok() {
            result = ended;
            together.cancel();
        }
    }
    result
}

/// Whether this node's worker, in whatever process, holds a good lease: for how long still, or why not. Reads the lease
/// file only; simulated workers have none.
pub fn health(config: &Config) -> Result<Duration, String> {
    let path = lease_path(config);
    let boot_id =
        lease::boot_id().map_err(|error| format!("this boot of the machine has no name: {error}"))?;
    let now = BootClock.now();
    match lease::find(&path, &boot_id) {
        Found::Deadline(deadline) if now < deadline => Ok(deadline.since(now)),
        Found::Deadline(deadline) => Err(format!(
            "no heartbeat of {} has been answered for long: its lease ran out {:?} ago",
            config.node,
            now.since(deadline)
        )),
        Found::Nothing(why) => Err(format!("worker {} has no lease: {why}", config.node)),
    }
}

fn lease_path(config: &Config) -> PathBuf {
    config.state_dir.join(format!("{}.lease", config.node))
}

fn worker(
    config: Arc<Config>,
    store: Store,
    runtime: Arc<dyn Runtime>,
    clock: Arc<dyn Clock>,
    pace: Pace,
    redis: Arc<Trouble>,
) -> Result<Worker, WorkerError> {
    let node = config.node.clone();
    let lease = match config.runtime {
        // Imagined pods end with this process: nobody has to find its lease.
        RuntimeKind::Sim => Lease::in_memory(),
        RuntimeKind::Docker | RuntimeKind::Process => lease(&config)?,
    };
    let engine = Engine::new(&node);
    Ok(Worker { config, node, store, runtime, clock, pace, lease, engine, redis })
}

fn lease(config: &Config) -> Result<Lease, WorkerError> {
    let lease = lease::boot_id().and_then(|boot_id| Lease::in_file(lease_path(config), boot_id));
    lease.map_err(|source| WorkerError::StateDir {
        node: config.node.clone(),
        path: config.state_dir.clone(),
        source,
    })
}
