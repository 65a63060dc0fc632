//! The faults of a run: `injection` chooses them, `failover` and `hints` carry them out, `schedule_faults`
//! has their state.

pub(crate) mod failover;
pub(crate) mod hints;
pub(crate) mod injection;
pub(crate) mod replica_snapshot;
pub(crate) mod schedule_faults;
