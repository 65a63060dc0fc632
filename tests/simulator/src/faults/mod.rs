//! The faults of a run.

pub(crate) mod failover;
pub(crate) mod hints;
pub(crate) mod injection;
pub(crate) mod replica_snapshot;
pub(crate) mod schedule_faults;
