//! Leases of the other workers of this machine.

use daemon::clock::BootInstant;
use model::ids::{ClusterId, NodeName};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherLease {
    pub node: NodeName,
    pub cluster: Option<ClusterId>,
    pub deadline: BootInstant,
}
