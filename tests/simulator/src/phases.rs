//! How long the parts of a run are.

/// Limit for converging after the faults have stopped, as a multiple of the silence after which a node is
/// declared dead.
pub(crate) const CONVERGENCE_LIMIT: u64 = 60;
/// Convergence is checked once per this many steps: the check reads everything.
pub(crate) const STEPS_PER_CONVERGENCE_CHECK: u64 = 8;
