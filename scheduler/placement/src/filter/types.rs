//! The definition of a filter: its reason, its check and its explanation.

use std::fmt;
use std::time::Duration;

use model::RedisMillis;
use model::node::Node;
use serde::Serialize;

use crate::candidate::Candidate;
use crate::requirements::Requirements;

pub(crate) struct NodeFilter {
    /// Unique among the filters.
    pub(crate) reason: Reason,
    pub(crate) is_feasible: fn(&Candidate, &Requirements, &EvalContext) -> bool,
    /// Explains a refusal in one sentence with numbers. Resources in use come from the candidate, which
    /// includes the batch's placements; the node provides texts.
    pub(crate) explain: fn(&Candidate, &Requirements, &EvalContext, &Node) -> String,
}

/// The reason why a node cannot run a pod: one word in CamelCase, as stored in Redis and shown in JSON and
/// events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Reason(pub(super) &'static str);

impl Reason {
    /// The cluster has no nodes.
    pub const NO_NODES: Self = Self("NoNodes");
    /// Another pod, or another program, has a host port that the pod needs.
    pub const HOST_PORT_TAKEN: Self = Self("HostPortTaken");

    /// The node's policy refuses the host access that the pod requests.
    pub const NOT_ALLOWED: Self = Self("NotAllowed");

    /// The data of a volume of the pod is on another node, or is being removed.
    pub const VOLUME_ELSEWHERE: Self = Self("VolumeElsewhere");

    /// Several nodes have contradicting copies of a volume of the pod.
    pub const VOLUME_CONFLICT: Self = Self("VolumeConflict");

    /// The node has a given-up copy of a volume of the pod.
    pub const VOLUME_FORMER: Self = Self("VolumeFormer");

    /// The node lacks the shared directory that a volume of the pod needs.
    pub const NO_SHARED_DIRECTORY: Self = Self("NoSharedDirectory");

    /// A volume of the pod may have its data on a node that has not reported its volumes.
    pub const VOLUME_UNREPORTED: Self = Self("VolumeUnreported");

    /// Returns the word.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The context of an evaluation, besides node and pod.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EvalContext {
    pub(crate) now: RedisMillis,
    /// The longest silence of a ready node.
    pub(crate) dead_after: Duration,
}
