//! The node beyond single pods: its resources, volumes, disk, network, engine and problems.
//!
//! Tests: beside the code, tests::volumes, scenarios::garbage, scenarios::usage, scenarios::volumes

pub(crate) mod engine_health;
pub(crate) mod garbage;
pub mod machine;
pub(crate) mod node_problems;
pub(crate) mod pod_network;
pub(crate) mod psi;
pub(crate) mod report_directory;
pub(crate) mod report_problems;
pub(crate) mod shared_directory;
pub(crate) mod usage;
pub(crate) mod volume_sizes;
pub(crate) mod volumes;
