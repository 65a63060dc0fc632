//! The Redis server itself: whether kubeleet can rely on it, whether it would survive its next fault, and how
//! full it is.
//!
//! Tests: beside the code, scripts::maxmemory

pub(crate) mod capacity;
pub(crate) mod info;
pub(crate) mod redundancy;
pub(crate) mod write_probe;
