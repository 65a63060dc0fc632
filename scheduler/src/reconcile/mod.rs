//! Ensures that a service has exactly its desired pods: [`plan`] decides, [`apply`] executes.
//!
//! Tests: beside the code, tests::healing, tests::global, scenarios::updates, scenarios::jobs

pub(crate) mod apply;
pub(crate) mod apply_job;
pub(crate) mod desired;
pub(crate) mod job;
pub(crate) mod lost_payload;
pub(crate) mod lost_pods;
pub(crate) mod members;
#[cfg(test)]
mod model;
mod moving;
pub(crate) mod ordinals;
pub(crate) mod plan;
pub(crate) mod preparing;
pub(crate) mod replacements;
mod replacing;
pub(crate) mod rollout;
pub(crate) mod slots;
pub(crate) mod sums;
pub(crate) mod unlisted;
pub(crate) mod violating_pods;
pub(crate) mod violations;
