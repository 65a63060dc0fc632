//! Reads from Redis all that placement knows of pending pods: payloads, specifications, places of volumes,
//! rules of services, and where their siblings are.
//!
//! The scheduler decides by it, and the API explains and plans with it: both see the same.
//!
//! Tests: beside the code, scheduler::tests, api::tests

mod batches;
mod begin_moves;
mod drain;
mod intake;
mod judge;
mod needs;
mod ordinals;
mod plan;
mod preemption;
mod priorities;
mod services;
mod snapshot;
mod waiting;

pub use batches::{MIN_BATCH, batch_limit, group_by_node, next_batch_size};
pub use begin_moves::{BegunMove, begin_moves};
pub use drain::{LeavingPod, Place, plan_drain, plan_leaving};
pub use intake::{Intake, InvalidPod, PendingPod, SeenMark, locate_volumes, parked};
pub use judge::{NodeJudgements, judge};
pub use needs::read_needs;
pub use plan::{
    ClusterState, InvalidChange, MAX_PLANNED_PODS, NewNodes, NodeChange, NodeSelection, PlanOutcome,
    PlannedChange, PlannedPod, PressureKind, Relief, StuckPod, begin_planned_moves, plan,
};
pub use preemption::PreemptionSearch;
pub use priorities::{decide_by_priority, read_waits};
pub use services::read_services;
pub use waiting::{ClassLook, class_of, look_at_classes};
