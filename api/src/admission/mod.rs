//! Admission of requests: capacity, growth of Redis, usefulness to the cluster, and objects still in use.

pub(crate) mod capacity;
pub(crate) mod capacity_gate;
pub(crate) mod growth;
pub(crate) mod login_check;
pub(crate) mod secret_keys;
pub(crate) mod users;
