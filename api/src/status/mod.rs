//! The status of single services, pods and nodes, as the API shows it; that of the cluster is in
//! `cluster/`.
//!
//! `pod_counts` counts pods by phase and reason, `views` converts records to the types of the API, and the
//! rest adds what jobs and crons have besides.

pub(crate) mod kind_keys;
pub(crate) mod kind_status;
pub(crate) mod pod_counts;
pub(crate) mod views;
