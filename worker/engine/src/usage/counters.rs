//! Resource usage of a container since its start, as far as the kernel reports it.

use model::node::Psi;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counters {
    /// Microseconds of CPU time.
    pub cpu_micros: Option<u64>,
    /// For which its CPU limit held it up.
    pub throttled_micros: Option<u64>,
    pub memory_limit_bytes: Option<u64>,
    /// In bytes, without the reclaimable file cache.
    pub memory_bytes: Option<u64>,
    pub read_bytes: Option<u64>,
    pub write_bytes: Option<u64>,
    pub psi: Option<Psi>,
}
