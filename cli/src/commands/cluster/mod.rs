//! Commands for the cluster as a whole, its nodes and its data.

pub(crate) mod backup;
pub(crate) mod check_and_recover;
pub(crate) mod drain;
pub(crate) mod events;
pub(crate) mod gc;
pub(crate) mod node_leave;
pub(crate) mod plan;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod version;
