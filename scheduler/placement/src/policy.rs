//! The settings of placement.

use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementPolicy {
    /// After this silence a node gets no new pods.
    pub dead_after: Duration,
    pub weights: Weights,
}

impl Default for PlacementPolicy {
    fn default() -> Self {
        Self { dead_after: Duration::from_secs(20), weights: Weights::default() }
    }
}

/// Thousandths of a point: integers have the same result everywhere. By default one pod on a node with 100
/// slots is 1.1 points; compare everything else with that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weights {
    /// Per percent in use: large nodes get more pods.
    pub pod_share: u32,
    /// Per pod: idle nodes of different sizes fill side by side, and a pod counts even among very many slots.
    pub pod_count: u32,
    /// Per percent of time in which some task waited. Low: a busy CPU is not a problem in itself.
    pub cpu_some: u32,
    pub memory_some: u32,
    /// All tasks waited. The highest: such a node is about to kill a process.
    pub memory_full: u32,
    pub io_some: u32,
    pub io_full: u32,
    /// Per pod of the same generation in the node's zone, and once more on the node: more than a busy CPU and
    /// a few pods together, less than pressure that hurts.
    pub sibling: u32,
    /// Pressure is rounded down to a multiple of this many percent; 0 counts as 1.
    ///
    /// Less than 5 % counts as none, so that equal idle nodes fill evenly. One step of `cpu_some` is worth
    /// about one pod.
    pub pressure_step: u32,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            pod_share: 1_000,
            pod_count: 100,
            cpu_some: 250,
            memory_some: 500,
            memory_full: 3_000,
            io_some: 250,
            io_full: 1_000,
            sibling: 35_000,
            pressure_step: 5,
        }
    }
}
