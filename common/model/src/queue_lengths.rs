//! Lengths of the queues outside the nodes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The lengths of the queues that do not belong to a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueLengths {
    /// `sq`: waiting for a scheduler.
    pub waiting: u64,
    /// `fq:<scheduler>`: in flight in all schedulers.
    pub in_flight: u64,
    /// `uq`: unschedulable right now.
    pub unschedulable: u64,
    /// `dq`: dead letters.
    pub dead: u64,
}
