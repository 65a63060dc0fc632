//! The checks of a run after each step. `invariants` are those of `docs/internals/invariants.md`; the other
//! files check what Redis alone does not show.

pub(crate) mod check_state;
pub(crate) mod ending_pods;
pub(crate) mod gates;
pub(crate) mod invariants;
pub(crate) mod known_jobs;
pub(crate) mod observed_state;
pub(crate) mod script_semantics;
