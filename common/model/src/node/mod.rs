//! Nodes: their record, resources and usage, and when one is dead (`timing`, `mass_loss`).

pub mod drain;
pub mod host_access;
pub mod labels;
pub mod mass_loss;
pub mod named_resources;
mod nomination;
mod rebalance_policy;
mod record;
pub mod resources;
pub mod timing;
pub mod usage;

pub use named_resources::ResourceIds;
pub use nomination::Nomination;
pub use rebalance_policy::RebalancePolicy;
pub use record::{HeldPod, Node, NodeInfo, NodeKind, NodeSettings, NodeState, Psi, SharedVolumesState};
pub use resources::{Resource, Resources};
