//! What an operator can tune about placement, and why the defaults are as they are.

use std::time::Duration;

/// How placement judges nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// A node whose last heartbeat is older than this gets nothing new. The same setting declares it dead.
    pub dead_after: Duration,
    /// What makes a node less attractive.
    pub weights: Weights,
}

impl Default for Policy {
    fn default() -> Self {
        Self { dead_after: Duration::from_secs(20), weights: Weights::default() }
    }
}

/// How much each observation adds to a node's load. The node with the least load gets the next pod.
///
/// Weights are thousandths of a point, so that all arithmetic is in whole numbers and the same everywhere. By
/// default one pod on a node with room for a hundred is 1.1 points; everything else can be read against that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weights {
    /// Per percent of the node's pod slots taken. Large nodes thus get more pods than small ones.
    pub pod_share: u32,
    /// Per pod, whatever the node's size. Keeps idle nodes of different sizes filling side by side, and every
    /// further pod visible on nodes with very many slots.
    pub pod_count: u32,
    /// Per percent of time in which some task waited for a CPU. Light: a busy CPU is what a CPU is for.
    pub cpu_some: u32,
    /// Per percent of time in which some task waited for memory.
    pub memory_some: u32,
    /// Per percent of time in which all tasks waited for memory. The heaviest: such a node is about to kill something.
    pub memory_full: u32,
    /// Per percent of time in which some task waited for I/O.
    pub io_some: u32,
    /// Per percent of time in which all tasks waited for I/O.
    pub io_full: u32,
    /// Pressure counts in whole steps of this many percent, rounded down; 0 is taken as 1.
    ///
    /// With 5, a pressure below 5 % is none at all, so equal idle nodes stay equal and fill evenly, although no two
    /// of them ever report the same 0.3 % and 0.7 %. Noise across a step's edge moves a node by one step, which by
    /// default is about one pod for `cpu_some`.
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
