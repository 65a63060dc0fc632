//! Leases of the other workers of this machine.

use daemon::clock::BootInstant;
use model::ids::{ClusterId, NodeName};

/// The lease of another worker of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherLease {
    /// Its node.
    pub node: NodeName,
    /// Its cluster, if it remembers one.
    pub cluster: Option<ClusterId>,
    /// The time when its lease expires or expired.
    pub deadline: BootInstant,
}
