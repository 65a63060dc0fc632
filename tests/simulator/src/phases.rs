//! The lengths of a run's phases.

/// In units of the silence after which a node is dead.
pub(crate) const CONVERGENCE_LIMIT: u64 = 60;
pub(crate) const STEPS_PER_CONVERGENCE_CHECK: u64 = 8;
