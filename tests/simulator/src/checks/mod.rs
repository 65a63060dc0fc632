//! The checks, and the state of a run that they need.

pub(crate) mod check_state;
pub(crate) mod ending_pods;
pub(crate) mod gates;
pub(crate) mod invariants;
pub(crate) mod known_jobs;
pub(crate) mod observed_state;
pub(crate) mod script_semantics;
