//! Secrets, configs and logins for registries, and the rollout of changed values.
//!
//! Tests: scripts::values, scripts::every_operation

pub(crate) mod registries;
pub(crate) mod value_rollouts;
pub(crate) mod values;
