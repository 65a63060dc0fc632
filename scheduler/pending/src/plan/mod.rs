//! Plans: the effect of changes of the cluster, on a copy of it, by the functions that make them.
//!
//! [`ClusterState::read`] reads once; a [`Fork`] takes the [changes](PlannedChange) in order. It drains by
//! the function that plans drains, and places pods in the batches of a scheduler that was idle: the cluster
//! does what was planned, unless another scheduler or a user is faster.
//!
//! Tests: plan::tests, scheduler::tests::planning

mod begin;
mod change;
mod fork;
mod outcome;
mod rebalance;
mod state;
#[cfg(test)]
mod tests;

use model::spec::PlacementProfile;
use placement::PlacementPolicy;

pub use begin::begin_planned_moves;
pub use change::{InvalidChange, NewNodes, NodeSelection, PlannedChange, PressureKind, Relief};
use fork::Fork;
pub use outcome::{NodeChange, PlanOutcome, PlannedPod, StuckPod};
pub use state::{ClusterState, MAX_PLANNED_PODS};

/// `profile` is that of pods whose service names none.
pub fn plan(
    state: ClusterState,
    policy: &PlacementPolicy,
    profile: PlacementProfile,
    changes: &[PlannedChange],
) -> Result<PlanOutcome, InvalidChange> {
    let mut fork = Fork::new(state, policy.clone(), profile);
    // Waiting pods are placed first, as a scheduler does.
    fork.place_waiting();
    let before = fork.picture();
    for (index, change) in changes.iter().enumerate() {
        fork.apply(change).map_err(|why| InvalidChange { index, why })?;
    }
    Ok(PlanOutcome::new(&before, &fork))
}
