//! The scheduler: gives waiting pods a node, and restores what the cluster must be when something broke.
//!
//! ```text
//! decide/, brake.rs, reconcile/plan.rs   pure: what to do
//! loops/                                 one file per control loop, each names the invariant it restores
//! runner.rs                              the one way a loop is run: ticks, hints, backoff, shutdown
//! ```
//!
//! Any number of schedulers may run at a time, and any may be killed on any line: what one has in its hands stays in
//! its in-flight list in Redis until the orphans loop of another gives it back, and every write is a script that
//! checks again. Nothing in this process' memory is needed by anybody.

mod apply;
mod brake;
pub mod decide;
mod intake;
mod loops;
mod measure;
mod pace;
mod reconcile;
mod runner;
#[cfg(test)]
mod tests;
mod view;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use common::config::{Config, Timing};
use common::ids::SchedulerId;
use common::store::{LinkOptions, Store};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use loops::confirm::Confirm;
use loops::deaths::Deaths;
use loops::drain::Drain;
use loops::guests::Guests;
use loops::orphans::Orphans;
use loops::place::Place;
use loops::reconcile::Reconcile;
use loops::unschedulable::Unschedulable;
use pace::Pace;
use runner::{Loop, run_loop};

/// How long an orderly end may spend on giving back what is in hand.
const GIVE_BACK_WITHIN: Duration = Duration::from_secs(2);

/// Why a scheduler ended although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum SchedulerError {
    /// One of its loops panicked: a bug. Nothing is lost; start the scheduler again.
    #[error(
        "the {name} loop panicked: this is a bug, please report it; nothing is lost, start the scheduler again"
    )]
    Panicked {
        /// Which loop.
        name: &'static str,
    },
}

/// Runs a scheduler until `shutdown`. Redis may come and go meanwhile: the loops wait for it.
///
/// # Errors
/// Only when a loop panicked.
pub async fn run(config: Arc<Config>, shutdown: CancellationToken) -> Result<(), SchedulerError> {
    let store = Store::new(config.redis.clone(), LinkOptions::default());
    run_with(config, store, shutdown).await
}

/// As [`run`], on a store that is there already.
///
/// # Errors
/// Only when a loop panicked.
pub async fn run_with(
    config: Arc<Config>,
    store: Store,
    shutdown: CancellationToken,
) -> Result<(), SchedulerError> {
    let id = SchedulerId::random_of(&config.node);
    tracing::info!(scheduler = %id, "the scheduler starts");
    let context = Context {
        store,
        id,
        pace: Pace::of(&config.timing),
        guest_pods: config.max_pods,
        died: Arc::new(Notify::new()),
    };
    run_context(context, shutdown).await
}

/// A scheduler that gave no sign of life for so long is gone, or hangs.
pub fn silent_after(timing: &Timing) -> Duration {
    Pace::of(timing).orphan_after
}

/// What every loop is given.
#[derive(Clone)]
pub(crate) struct Context {
    /// The door to Redis.
    pub(crate) store: Store,
    /// Who we are; fresh each start.
    pub(crate) id: SchedulerId,
    /// How fast everything goes.
    pub(crate) pace: Pace,
    /// How many pods a guest is given at most.
    pub(crate) guest_pods: u64,
    /// Rung when a node was declared dead here.
    pub(crate) died: Arc<Notify>,
}

pub(crate) async fn run_context(context: Context, shutdown: CancellationToken) -> Result<(), SchedulerError> {
    measure::describe();
    // The loops stop when we are asked to, and when one of them panicked.
    let stop = shutdown.child_token();
    let mut loops = Loops::default();
    loops.spawn(Place::new(&context), &stop);
    loops.spawn(Unschedulable::new(&context), &stop);
    loops.spawn(Deaths::new(&context), &stop);
    loops.spawn(Drain::new(&context), &stop);
    loops.spawn(Orphans::new(&context), &stop);
    loops.spawn(Reconcile::new(&context), &stop);
    loops.spawn(Confirm::new(&context), &stop);
    loops.spawn(Guests::new(&context), &stop);
    let ended = loops.until_all_ended(&stop).await;
    // Without this others would wait until we are silent for long enough. It is a courtesy: they would.
    let given_back = tokio::time::timeout(GIVE_BACK_WITHIN, give_back(&context)).await;
    tracing::info!(complete = given_back.is_ok(), "the scheduler has ended");
    ended
}

/// The running loops. Dropped, they are aborted.
#[derive(Default)]
struct Loops {
    tasks: JoinSet<()>,
    names: HashMap<tokio::task::Id, &'static str>,
}

impl Loops {
    fn spawn<L: Loop>(&mut self, work: L, stop: &CancellationToken) {
        let task = self.tasks.spawn(run_loop(work, stop.clone()));
        self.names.insert(task.id(), L::NAME);
    }

    /// The first panic, if there is one, stops the others.
    async fn until_all_ended(mut self, stop: &CancellationToken) -> Result<(), SchedulerError> {
        let mut first = Ok(());
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                stop.cancel();
                let name = self.names.get(&error.id()).copied().unwrap_or_default();
                first = first.and(Err(SchedulerError::Panicked { name }));
            }
        }
        first
    }
}

/// Gives what is still in hand back to the queue.
async fn give_back(context: &Context) {
    loop {
        match context.store.return_orphans(&context.id, Duration::ZERO, 1000).await {
            // Our last sign of life was in this very millisecond.
            Ok(None) => tokio::time::sleep(Duration::from_millis(2)).await,
            Ok(Some(0)) => return,
            Ok(Some(_)) => {}
            Err(error) => return tracing::debug!(%error, "what is in hand is left to the others"),
        }
    }
}
