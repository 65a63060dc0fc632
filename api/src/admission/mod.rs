//! What a request may not add or take away: it fits no node, fills Redis, is no use to the cluster, or is
//! still in use.

pub(crate) mod capacity;
pub(crate) mod capacity_gate;
pub(crate) mod growth;
pub(crate) mod login_check;
pub(crate) mod secret_keys;
pub(crate) mod users;
