//! The Redis server itself.

pub(crate) mod capacity;
pub(crate) mod info;
pub(crate) mod redundancy;
pub(crate) mod write_probe;
