//! Secrets, configs and logins.

pub(crate) mod registries;
pub(crate) mod value_rollouts;
pub(crate) mod values;
