//! The Redis server itself.
//!
//! Tests: beside the code, scripts::maxmemory

pub(crate) mod capacity;
pub(crate) mod info;
pub(crate) mod redundancy;
pub(crate) mod write_probe;
