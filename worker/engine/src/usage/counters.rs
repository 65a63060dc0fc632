//! What a container has used since it began.

use model::node::Psi;

/// What a container has used since it began, as far as the kernel tells.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counters {
    /// Microseconds of CPU time.
    pub cpu_micros: Option<u64>,
    /// Bytes of memory that it uses now, without the file cache that the kernel can take back.
    pub memory_bytes: Option<u64>,
    /// Bytes read from block devices.
    pub read_bytes: Option<u64>,
    /// Bytes written to block devices.
    pub write_bytes: Option<u64>,
    /// Its pressure now.
    pub psi: Option<Psi>,
}
