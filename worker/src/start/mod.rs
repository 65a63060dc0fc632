//! From a payload in this node's queue to a running and acknowledged pod: `claim`, `admission`, `pod_start`,
//! `ack`.
//!
//! Tests: beside the code, tests::claiming, scenarios::secrets, schedules

pub(crate) mod ack;
pub(crate) mod ack_queue;
pub(crate) mod admission;
pub(crate) mod claim;
pub(crate) mod cluster_logins;
pub(crate) mod container_files;
pub(crate) mod dependencies;
pub(crate) mod dependency_gate;
pub(crate) mod files_unavailable;
pub(crate) mod first_containers;
pub(crate) mod image_checks;
pub(crate) mod node_fault;
pub(crate) mod pod_images;
pub(crate) mod pod_start;
pub(crate) mod resource_ids;
pub(crate) mod volume_claims;
