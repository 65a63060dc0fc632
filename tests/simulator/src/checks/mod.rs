//! What must hold, and what is known of a run to check it.

pub(crate) mod check_state;
pub(crate) mod ending_pods;
pub(crate) mod gates;
pub(crate) mod invariants;
pub(crate) mod known_jobs;
pub(crate) mod observed_state;
pub(crate) mod script_semantics;
