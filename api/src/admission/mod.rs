//! Admission: what a request may not add or remove. `capacity` computes whether pods fit on the nodes, and
//! `capacity_gate` lets requests that need it do so one after the other; `growth` refuses what a full Redis
//! has no room for; `login_check` and `secret_keys` refuse logins and secrets that no worker could use;
//! `users` finds the services that use a secret, config or login that is to be removed.

pub(crate) mod capacity;
pub(crate) mod capacity_gate;
pub(crate) mod growth;
pub(crate) mod login_check;
pub(crate) mod secret_keys;
pub(crate) mod users;
