//! Secrets, configs and logins.
//!
//! Tests: scripts::values, scripts::every_operation

pub(crate) mod registries;
pub(crate) mod value_rollouts;
pub(crate) mod values;
