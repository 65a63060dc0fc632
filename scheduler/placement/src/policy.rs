//! The settings of placement, and the reasons for the defaults.

use std::time::Duration;

/// The settings of placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementPolicy {
    /// A node whose last heartbeat is older gets no new pods. The same setting declares it dead.
    pub dead_after: Duration,
    /// The weight of each observation in a node's load.
    pub weights: Weights,
}

impl Default for PlacementPolicy {
    fn default() -> Self {
        Self { dead_after: Duration::from_secs(20), weights: Weights::default() }
    }
}

/// The weight of each observation in a node's load. The node with the lowest load gets the next pod.
///
/// Weights are in thousandths of a point, so that all arithmetic uses integers and has the same result
/// everywhere. By default one pod on a node with 100 pod slots is 1.1 points; compare everything else with
/// that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weights {
    /// Per percent of the node's pod slots in use. Large nodes therefore get more pods than small ones.
    pub pod_share: u32,
    /// Per pod, whatever the size of the node. Idle nodes of different sizes then fill side by side, and one
    /// more pod still counts on a node with very many slots.
    pub pod_count: u32,
    /// Per percent of time in which some task waited for a CPU. Low: a busy CPU is not a problem in itself.
    pub cpu_some: u32,
    /// Per percent of time in which some task waited for memory.
    pub memory_some: u32,
    /// Per percent of time in which all tasks waited for memory. The highest: such a node is about to kill a
    /// process.
    pub memory_full: u32,
    /// Per percent of time in which some task waited for I/O.
    pub io_some: u32,
    /// Per percent of time in which all tasks waited for I/O.
    pub io_full: u32,
    /// Pressure is rounded down to a multiple of this many percent; 0 counts as 1.
    ///
    /// With 5, a pressure below 5 % counts as none. Equal idle nodes then stay equal and fill evenly,
    /// although they never report exactly the same pressure. Noise around a multiple moves a node by one
    /// step; by default, one step of `cpu_some` is worth about one pod.
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
            pressure_step: 5,
        }
    }
}
