//! The worker: makes what its node's queues say true on an engine, and says so.
//!
//! [`run`] is the daemon. A worker has lives (`life`): it registers, looks at what runs here, and serves its loops
//! until the process ends or the cluster gives up on it. The loops, a file each: `heartbeat` (the lease, and what is to
//! be stopped), `claim` (payloads from the queue), `start` (one pod's start), `ack` (what runs), `supervise` (what runs
//! against what should). `fence` guards the lease over all lives, and [`guard`], in the parent process, does when this
//! process can not. Decisions are pure: `step`, `policy`, `backoff`.
//!
//! Nothing that matters is in memory only: payloads are in `rq` until they run, what runs is found again by its labels.

mod ack;
mod act;
mod adopt;
mod backoff;
mod claim;
mod courtesy;
mod fence;
pub mod guard;
mod heartbeat;
mod lease;
mod life;
mod logs;
pub mod machine;
mod policy;
mod psi;
mod pulse;
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
use common::node::Psi;
use common::store::{LinkOptions, Store};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::lease::LeasePath;
use crate::runtime::docker::DockerRuntime;
use crate::runtime::process::ProcessRuntime;
use crate::runtime::sim::{SimOptions, SimRuntime};
use crate::runtime::{Runtime, RuntimeError};
use crate::trouble::Trouble;
use crate::worker::Worker;

pub use crate::lease::{Found, Keeper};
pub use crate::pulse::Pulse;
pub use crate::worker::Pace;

/// What of its machine a worker touches.
#[derive(Clone)]
pub struct Hands {
    /// Runs its containers.
    pub runtime: Arc<dyn Runtime>,
    /// Its lease is measured on it.
    pub clock: Arc<dyn Clock>,
    /// Keeps its lease for the worker that comes after it; none where nothing outlives the process.
    pub keeper: Option<Arc<dyn Keeper>>,
    /// How much the machine's tasks wait for its resources, where it can be told.
    pub pressure: fn() -> Option<Psi>,
}

impl Hands {
    /// A real machine's.
    fn real(runtime: Arc<dyn Runtime>, keeper: Option<Arc<dyn Keeper>>) -> Self {
        Self { runtime, clock: Arc::new(BootClock), keeper, pressure: psi::read }
    }
}

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
///
/// # Errors
/// When it can not start, or can not go on.
pub async fn run(config: Arc<Config>, shutdown: CancellationToken) -> Result<(), WorkerError> {
    run_guarded(config, Pulse::none(), shutdown).await
}

/// The same with a guard that is told that it lives.
///
/// # Errors
/// When it can not start, or can not go on.
pub async fn run_guarded(
    config: Arc<Config>,
    pulse: Pulse,
    shutdown: CancellationToken,
) -> Result<(), WorkerError> {
    let store = Store::new(config.redis.clone(), LinkOptions::default());
    let runtime = engine(&config)?;
    #[cfg(debug_assertions)]
    let runtime: Arc<dyn Runtime> = Arc::new(runtime::failing::Failing(runtime));
    if config.runtime == RuntimeKind::Sim && config.sim_workers > 1 {
        return run_many(config, store, runtime, shutdown).await;
    }
    let hands = Hands::real(runtime, keeper(&config)?);
    let redis = Arc::new(Trouble::of("talking to Redis"));
    let worker = Worker::new(config, store, hands, Pace::default(), redis);
    life::run(Arc::new(Worker { pulse, ..worker }), shutdown).await
}

/// What runs this node's containers.
fn engine(config: &Config) -> Result<Arc<dyn Runtime>, WorkerError> {
    Ok(match config.runtime {
        RuntimeKind::Docker => Arc::new(DockerRuntime::connect(config.docker_host.as_deref())?),
        RuntimeKind::Process if config.policy.processes => {
            Arc::new(ProcessRuntime::new(config.data_dir.clone()))
        }
        RuntimeKind::Process => return Err(WorkerError::ProcessesNotAllowed),
        RuntimeKind::Sim => Arc::new(SimRuntime::new(SimOptions::default())),
    })
}

/// Runs one worker with these hands.
pub async fn run_with(
    config: Arc<Config>,
    store: Store,
    runtime: Arc<dyn Runtime>,
    shutdown: CancellationToken,
) -> Result<(), WorkerError> {
    let hands = Hands::real(runtime, keeper(&config)?);
    run_by_hand(config, store, hands, Pace::default(), shutdown).await
}

/// Runs one worker on a machine that may be imagined, at any pace.
pub async fn run_by_hand(
    config: Arc<Config>,
    store: Store,
    hands: Hands,
    pace: Pace,
    shutdown: CancellationToken,
) -> Result<(), WorkerError> {
    let redis = Arc::new(Trouble::of("talking to Redis"));
    life::run(Arc::new(Worker::new(config, store, hands, pace, redis)), shutdown).await
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
        let hands = Hands::real(runtime.clone(), None);
        let worker = Worker::new(config, store.clone(), hands, Pace::default(), redis.clone());
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

fn keeper(config: &Config) -> Result<Option<Arc<dyn Keeper>>, WorkerError> {
    if config.runtime == RuntimeKind::Sim {
        // Imagined pods end with this process: nobody has to find its lease.
        return Ok(None);
    }
    match lease::boot_id().and_then(|boot_id| LeasePath::new(lease_path(config), boot_id)) {
        Ok(file) => Ok(Some(Arc::new(file))),
        Err(source) => {
            Err(WorkerError::StateDir { node: config.node.clone(), path: config.state_dir.clone(), source })
        }
    }
}
