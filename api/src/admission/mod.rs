//! Admission: refuses requests that could not be carried out or would break other services.

pub(crate) mod capacity;
pub(crate) mod capacity_gate;
pub(crate) mod growth;
pub(crate) mod login_check;
pub(crate) mod plan_gate;
pub(crate) mod secret_keys;
pub(crate) mod users;
