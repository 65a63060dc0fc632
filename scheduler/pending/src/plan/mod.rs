//! Plans: the effect of changes of the cluster, on a copy of it, by the functions that make them.
//!
//! [`ClusterState::read`] reads once; a [`Fork`] takes the [changes](PlannedChange) in order. It drains by
//! the function that plans drains, and places pods in the batches of a scheduler that was idle: the cluster
//! does what was planned, unless another scheduler or a user is faster.
//!
//! Tests: plan::tests, scheduler::tests::planning

mod fork;
mod outcome;
mod rebalance;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use model::ids::{NodeName, ServiceName};
use model::node::Resources;
use model::spec::{DesiredService, PlacementProfile};
use placement::PlacementPolicy;

use fork::Fork;
pub use outcome::{NodeChange, PlanOutcome, PlannedPod, StuckPod};
pub use state::{ClusterState, MAX_PLANNED_PODS};

#[derive(Debug, Clone)]
pub enum PlannedChange {
    Drain(NodeName),
    /// These nodes are dead at once.
    Lose(Vec<NodeName>),
    AddNodes(NewNodes),
    Scale(BTreeMap<ServiceName, u32>),
    Put(Box<DesiredService>),
    Rebalance {
        max_moves: usize,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNodes {
    /// Without a number of pods or processes: those of the largest node.
    pub capacity: Resources,
    pub labels: BTreeMap<String, String>,
    pub count: u32,
}

/// A change that cannot be planned: its index, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidChange {
    pub index: usize,
    pub why: String,
}

/// `profile` is that of pods whose service names none.
pub fn plan(
    state: ClusterState,
    policy: &PlacementPolicy,
    profile: PlacementProfile,
    changes: &[PlannedChange],
) -> Result<PlanOutcome, InvalidChange> {
    let mut fork = Fork::new(state, policy.clone(), profile);
    // Those that wait are placed before anything changes, as a scheduler does.
    fork.place_waiting();
    let before = fork.picture();
    for (index, change) in changes.iter().enumerate() {
        fork.apply(change).map_err(|why| InvalidChange { index, why })?;
    }
    Ok(PlanOutcome::new(&before, &fork))
}
