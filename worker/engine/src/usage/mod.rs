//! What containers use: read from control groups and from processes.

pub(crate) mod cgroup;
mod counters;
pub(crate) mod processes;

pub use self::counters::Counters;
