//! Placement: decides which pod goes to which node. Pure: no Redis, clock, environment or randomness. `make
//! instructions` counts the instructions of a decision.
//!
//! ```text
//! nodes ──upsert──> ClusterSnapshot ──┐
//! pending pods (PodRequest) ──────────┼── decide ──> a node for each pod, or why no node can run it
//! now, PlacementPolicy ───────────────┘
//! ```
//!
//! A pod goes to the node with the lowest [load](score) that passes every filter; ties go to the first by
//! name. Pods of one generation avoid each other's nodes and zones. A profile other than `default` has a load
//! of its own.
//!
//! Each placement counts for the next, so nothing is overcommitted within a batch. Between schedulers,
//! `assign.lua` prevents it.
//!
//! Tests: beside the code, tests, filter::tests

mod amounts;
mod batch;
mod candidate;
mod class;
mod decision;
mod explain;
mod filter;
mod fitting;
mod ordinal;
mod placed;
mod policy;
mod preempt;
mod profile;
mod rank_heap;
mod rebalance;
mod record;
mod related;
mod replay;
mod requirements;
mod ruled;
mod rules;
mod scan;
pub mod score;
mod snapshot;
mod suggest;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod whole;

pub use decision::{Decision, Outcome, decide, decide_and_record};
pub use explain::{FilterRefusal, NodeEvaluation, explain};
pub use filter::Reason;
pub use fitting::count_fitting;
pub use placed::{OrdinalPlaces, PlacedPods, PodsByNode};
pub use policy::{PlacementPolicy, Weights};
pub use preempt::{FullNode, Resident, choose_victims};
pub use profile::{NeededUnits, Workload, left_points, tie_points};
pub use rebalance::{Relocation, RunningPod, rebalance};
pub use record::DecisionRecord;
pub use requirements::{
    BoundVolume, ContestedVolume, Generation, GivenUpCopy, NodeRules, Ordinal, OrdinalZone, PodRequest,
    Requirements, Target, UnreportedVolume, VolumePlaces, ZoneChoice,
};
pub use snapshot::{ClusterSnapshot, PlacementTarget};
pub use suggest::suggest;
