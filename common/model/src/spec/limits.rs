//! Limits that several files use.

/// More is likely a typing error.
pub const MAX_REPLICAS: u32 = 2_000_000;

/// Exact in a Lua number.
pub const MAX_MEMORY_BYTES: u64 = 1 << 50;

/// Docker's.
pub const MIN_MEMORY_BYTES: u64 = 6 * 1024 * 1024;

/// Few enough that a fork bomb does not stop the machine.
pub const MAX_PIDS: u32 = 4096;

/// More results would take days to decide anything.
pub const MAX_THRESHOLD: u32 = 1000;
