//! The scheduler: assigns pods to nodes, and restores the desired state after failures.
//!
//! ```text
//! the crate placement, write_witness.rs,
//! cron.rs, reconcile/{plan,job}.rs           pure: decide what to do
//! apply.rs, reconcile/apply.rs               carry it out
//! loops/                                     one file per control loop; each names the invariant it restores
//! ```
//!
//! Any number of schedulers can run, and each can be killed at any instruction. A scheduler's payloads stay
//! in its in-flight list in Redis until another one's reclaim loop returns them, and every write is a script
//! that checks again. Nothing depends on the memory of this process.
//!
//! Tests: tests, reconcile::model, schedules

mod apply;
mod balance;
mod context;
mod cron;
mod decision_log;
mod loop_lease;
mod loops;
mod metrics;
mod preempting;
mod reconcile;

#[cfg(test)]
mod tests;
mod timings;
mod view;
mod write_witness;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use daemon::clock::{BootClock, Clock};
use daemon::config::Config;
use daemon::control_loop::{Loop, run_loop};
use model::ids::SchedulerId;
use model::node::RebalancePolicy;
use store::StoreError;
use store::{LinkOptions, Store};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use context::SchedulerContext;
use loops::abandoned_volumes::AbandonedVolumeLoop;
use loops::balance::BalanceLoop;
use loops::confirm::ConfirmLoop;
use loops::cron::CronLoop;
use loops::declare_dead::DeclareDeadLoop;
use loops::drain::DrainLoop;
use loops::external_workers::ExternalWorkerLoop;
use loops::free_addresses::FreeAddressLoop;
use loops::moves::MovesLoop;
use loops::obsolete_dead_letters::ObsoleteDeadLetterLoop;
use loops::place::PlacementLoop;
use loops::reclaim::ReclaimLoop;
use loops::reconcile::ReconcileLoop;
use loops::unschedulable::UnschedulableLoop;
use loops::value_rollout::ValueRolloutLoop;
use timings::LoopTimings;

pub use self::metrics::describe_metrics;

const RETURN_TIMEOUT: Duration = Duration::from_secs(2);
const RETURN_BATCH: usize = 1000;

#[derive(Debug, thiserror::Error)]
pub enum SchedulerError {
    #[error(
        "the {name} loop panicked: this is a bug, please report it; no pods are lost, \
         start the scheduler again"
    )]
    Panicked {
        /// Name of the loop.
        name: &'static str,
    },
}

/// While Redis is unavailable, the loops wait. Fails only if a loop panicked.
pub async fn run(config: Arc<Config>, shutdown: CancellationToken) -> Result<(), SchedulerError> {
    let store = Store::new(config.redis.clone(), LinkOptions::default());
    run_with(config, store, shutdown).await
}

pub async fn run_with(
    config: Arc<Config>,
    store: Store,
    shutdown: CancellationToken,
) -> Result<(), SchedulerError> {
    run_with_clock(config, store, Arc::new(BootClock), shutdown).await
}

pub async fn run_with_clock(
    config: Arc<Config>,
    store: Store,
    clock: Arc<dyn Clock>,
    shutdown: CancellationToken,
) -> Result<(), SchedulerError> {
    let id = SchedulerId::random_for(&config.node);
    tracing::info!(scheduler = %id, "scheduler started");
    let context = SchedulerContext {
        store,
        clock,
        id,
        timings: LoopTimings::of(&config.timing, &config.redis),
        profile: config.placement_profile,
        external_worker_pods: config.max_pods,
        volume_grace: config.volume_grace,
        rebalance: config.rebalance,
        rebalance_moves: config.rebalance_moves,
        node_died: Arc::new(Notify::new()),
    };
    run_context(context, shutdown).await
}

pub fn silent_after(config: &Config) -> Duration {
    LoopTimings::of(&config.timing, &config.redis).reclaim_after
}

pub(crate) async fn run_context(
    context: SchedulerContext,
    shutdown: CancellationToken,
) -> Result<(), SchedulerError> {
    describe_metrics();
    let stop = shutdown.child_token();
    let mut loops = LoopSet::default();
    loops.spawn(PlacementLoop::new(&context), &stop);
    loops.spawn(UnschedulableLoop::new(&context), &stop);
    loops.spawn(DeclareDeadLoop::new(&context), &stop);
    loops.spawn(DrainLoop::new(&context), &stop);
    loops.spawn(ReclaimLoop::new(&context), &stop);
    loops.spawn(ReconcileLoop::new(&context), &stop);
    loops.spawn(MovesLoop::new(&context), &stop);
    loops.spawn(ObsoleteDeadLetterLoop::new(&context), &stop);
    if let Some(grace) = context.volume_grace {
        loops.spawn(AbandonedVolumeLoop::new(&context, grace), &stop);
    }
    if context.rebalance != RebalancePolicy::default() {
        loops.spawn(BalanceLoop::new(&context), &stop);
    }
    loops.spawn(ConfirmLoop::new(&context), &stop);
    loops.spawn(CronLoop::new(&context), &stop);
    loops.spawn(ValueRolloutLoop::new(&context), &stop);
    loops.spawn(ExternalWorkerLoop::new(&context), &stop);
    loops.spawn(FreeAddressLoop::new(&context), &stop);
    let result = loops.join_all(&stop).await;
    // Otherwise another scheduler reclaims the payloads, later.
    let returned = tokio::time::timeout(RETURN_TIMEOUT, retire(&context)).await;
    if returned.is_err() {
        tracing::warn!(
            "in-flight pods were not returned to the queue within {RETURN_TIMEOUT:?}; \
             another scheduler will reclaim them"
        );
    }
    tracing::info!(scheduler = %context.id, "scheduler stopped");
    result
}

/// Aborts its loops when dropped.
#[derive(Default)]
struct LoopSet {
    tasks: JoinSet<()>,
    names: HashMap<tokio::task::Id, &'static str>,
}

impl LoopSet {
    fn spawn<L: Loop<StoreError>>(&mut self, control_loop: L, stop: &CancellationToken) {
        let task = self.tasks.spawn(run_loop(control_loop, stop.clone()));
        self.names.insert(task.id(), L::NAME);
    }

    /// A panic stops the others.
    async fn join_all(mut self, stop: &CancellationToken) -> Result<(), SchedulerError> {
        let mut result = Ok(());
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                stop.cancel();
                let name = self.names.get(&error.id()).copied().unwrap_or_default();
                result = result.and(Err(SchedulerError::Panicked { name }));
            }
        }
        result
    }
}

async fn retire(context: &SchedulerContext) {
    loop {
        match context.store.retire_scheduler(&context.id, RETURN_BATCH).await {
            // The last heartbeat was in this very millisecond.
            Ok(None) => tokio::time::sleep(Duration::from_millis(2)).await,
            Ok(Some(0)) => return,
            Ok(Some(_)) => {}
            Err(error) => {
                tracing::debug!("in-flight pods are left to other schedulers: {error}");
                return;
            }
        }
    }
}
