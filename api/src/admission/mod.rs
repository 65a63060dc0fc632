//! Admission: refusals of requests that the cluster has no room for, that no worker could carry out, or that
//! remove an object which services use.

pub(crate) mod capacity;
pub(crate) mod capacity_gate;
pub(crate) mod growth;
pub(crate) mod login_check;
pub(crate) mod secret_keys;
pub(crate) mod users;
