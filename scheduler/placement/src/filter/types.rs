//! The definition of a filter.

use std::fmt;
use std::time::Duration;

use model::RedisMillis;
use model::node::Node;

use crate::candidate::Candidate;
use crate::requirements::Requirements;

pub(crate) struct NodeFilter {
    pub(crate) reason: Reason,
    pub(crate) is_feasible: fn(&Candidate, &Requirements, &EvalContext) -> bool,
    /// One sentence with numbers. The candidate includes the batch's placements.
    pub(crate) explain: fn(&Candidate, &Requirements, &EvalContext, &Node) -> String,
}

/// CamelCase, as stored in Redis and shown in JSON and events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reason(pub(super) &'static str);

impl Reason {
    pub const NO_NODES: Self = Self("NoNodes");
    /// Taken by another pod or program.
    pub const HOST_PORT_TAKEN: Self = Self("HostPortTaken");

    /// Too few ids of a named resource.
    pub const INSUFFICIENT_RESOURCE: Self = Self("InsufficientResource");

    pub const NOT_ALLOWED: Self = Self("NotAllowed");

    pub const CPU_UNKNOWN: Self = Self("CpuUnknown");

    pub const CONSTRAINT: Self = Self("Constraint");

    pub const MAX_PER_NODE: Self = Self("MaxPerNode");

    /// The zone rule of a stateful service knows no zone for the pod or for the node.
    pub const NO_ZONE: Self = Self("NoZone");

    /// The zone rule of a stateful service has chosen another zone.
    pub const OTHER_ZONE: Self = Self("OtherZone");

    /// The service is global, and this is another node's pod.
    pub const OTHER_NODE: Self = Self("OtherNode");

    pub const SPREAD: Self = Self("Spread");

    /// There is no pod of a service near which this one runs.
    pub const AFFINITY: Self = Self("Affinity");

    /// There is a pod of a service away from which this one runs, or the other way round.
    pub const ANTI_AFFINITY: Self = Self("AntiAffinity");

    /// The data is on another node, or is being removed.
    pub const VOLUME_ELSEWHERE: Self = Self("VolumeElsewhere");

    pub const VOLUME_CONFLICT: Self = Self("VolumeConflict");

    pub const VOLUME_FORMER: Self = Self("VolumeFormer");

    pub const NO_SHARED_DIRECTORY: Self = Self("NoSharedDirectory");

    /// A node that may have the data has not reported.
    pub const VOLUME_UNREPORTED: Self = Self("VolumeUnreported");

    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct EvalContext {
    pub(crate) now: RedisMillis,
    pub(crate) dead_after: Duration,
}
