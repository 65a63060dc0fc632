//! Nodes and schedulers: sessions of workers (`session`), death and drain (`dead_nodes`), `kubeleet node rm`
//! (`nodes`), and workers' reports about their machines.
//!
//! Tests: scripts::nodes, scripts::labels, scripts::session, scripts::clocks, scripts::volumes,
//! scripts::every_operation

pub(crate) mod conditions;
pub(crate) mod dead_nodes;
pub(crate) mod drains;
pub(crate) mod healing;
pub(crate) mod held;
pub(crate) mod hints;
pub(crate) mod labels;
pub(crate) mod nodes;
pub(crate) mod schedulers;
pub(crate) mod session;
pub(crate) mod shared_directory;
pub(crate) mod volumes;
