//! Nodes: their record, resources and usage, the access to the host that they allow (`host_access`), and
//! the times after which one is dead (`timing`, `mass_loss`).

pub mod host_access;
pub mod mass_loss;
mod record;
pub mod resources;
pub mod timing;
pub mod usage;

pub use record::{HeldPod, Node, NodeInfo, NodeKind, NodeSettings, NodeState, Psi, SharedVolumesState};
pub use resources::{Resource, Resources};
