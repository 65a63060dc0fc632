//! Views of services, pods and nodes.

pub(crate) mod kind_keys;
pub(crate) mod kind_status;
pub(crate) mod pod_counts;
pub(crate) mod views;
