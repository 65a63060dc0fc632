//! The status of single services, pods and nodes; that of the cluster is in `cluster/`.

pub(crate) mod kind_keys;
pub(crate) mod kind_status;
pub(crate) mod pod_counts;
pub(crate) mod views;
