//! Nodes and schedulers: sessions, resources, and failure detection.
//!
//! Tests: scripts::nodes, scripts::session, scripts::clocks, scripts::volumes, scripts::every_operation

pub(crate) mod conditions;
pub(crate) mod dead_nodes;
pub(crate) mod healing;
pub(crate) mod held;
pub(crate) mod hints;
pub(crate) mod nodes;
pub(crate) mod schedulers;
pub(crate) mod session;
pub(crate) mod shared_directory;
pub(crate) mod volumes;
