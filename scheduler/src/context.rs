//! The shared context of all loops of one scheduler.

use std::sync::Arc;
use std::time::Duration;

use daemon::clock::Clock;
use model::ids::SchedulerId;
use model::node::RebalancePolicy;
use model::spec::PlacementProfile;
use placement::PlacementPolicy;
use store::Store;
use tokio::sync::Notify;

use crate::timings::LoopTimings;

#[derive(Clone)]
pub(crate) struct SchedulerContext {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    /// New at each start.
    pub(crate) id: SchedulerId,
    pub(crate) timings: LoopTimings,
    /// Of pods whose service names none.
    pub(crate) profile: PlacementProfile,
    pub(crate) external_worker_pods: u64,
    /// `None` for ever.
    pub(crate) volume_grace: Option<Duration>,
    pub(crate) rebalance: RebalancePolicy,
    /// In an hour.
    pub(crate) rebalance_moves: usize,
    pub(crate) node_died: Arc<Notify>,
}

impl SchedulerContext {
    /// Of plans for pods that run already.
    pub(crate) fn placement_policy(&self) -> PlacementPolicy {
        PlacementPolicy { dead_after: self.timings.dead_after, ..PlacementPolicy::default() }
    }
}
