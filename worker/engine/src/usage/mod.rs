//! Resource usage of containers, read from control groups and processes.

pub(crate) mod cgroup;
mod counters;
pub(crate) mod processes;

pub use self::counters::Counters;
