//! Resource usage of a container since its start.

use model::node::Psi;

/// Resource usage of a container since its start, as far as the kernel reports it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counters {
    /// Microseconds of CPU time.
    pub cpu_micros: Option<u64>,
    /// Memory in use now, in bytes, without the reclaimable file cache.
    pub memory_bytes: Option<u64>,
    /// Bytes read from block devices.
    pub read_bytes: Option<u64>,
    /// Bytes written to block devices.
    pub write_bytes: Option<u64>,
    /// Current pressure.
    pub psi: Option<Psi>,
}
