//! The filters: each decides whether a node can run a pod and, if not, explains why.
//!
//! To add a filter, write `filter/<name>.rs` with one [`NodeFilter`] (its reason, its check and its
//! explanation), and add it to [`NODE_FILTERS`] or [`POD_FILTERS`]. A filter that needs another fact takes it
//! from the node through [`Candidate`], or from the pod through [`Requirements`].
//!
//! Filters change no state, so the same filter both refuses a pod and later explains the refusal.

mod cordoned;
mod disk_pressure;
mod engine;
mod external_worker;
mod host_access;
mod host_ports;
mod ready;
mod resources;
mod shared_directory;
mod volumes;

use std::fmt;
use std::time::Duration;

use common::RedisMillis;
use common::node::Node;
use serde::Serialize;

use super::candidate::Candidate;
use super::requirements::Requirements;

/// Filters that ignore the pod: a node that fails one of them gets no pod of this batch at all.
pub(super) const NODE_FILTERS: &[NodeFilter] =
    &[ready::READY, cordoned::SCHEDULABLE, engine::HEALTHY, disk_pressure::HAS_ROOM];

/// Filters that depend on the pod. A batch only uses up resources, so a refusal holds for the rest of the
/// batch.
pub(super) const POD_FILTERS: &[NodeFilter] = &[
    resources::POD_SLOTS,
    resources::CPU,
    resources::MEMORY,
    resources::PIDS,
    resources::DISK,
    host_ports::FREE,
    host_access::ALLOWED,
    external_worker::IMAGE_ONLY,
    volumes::DATA_IS_HERE,
    volumes::PLACE_IS_KNOWN,
    volumes::COPIES_AGREE,
    volumes::NOTHING_GIVEN_UP,
    shared_directory::READY,
];

/// One check of a node for a pod, with the reason and the explanation of a refusal.
pub(super) struct NodeFilter {
    /// No two filters have the same reason.
    pub(super) reason: Reason,
    pub(super) is_feasible: fn(&Candidate, &Requirements, &EvalContext) -> bool,
    /// Explains a refusal in one sentence with numbers. Resources in use come from the candidate, because a
    /// batch has already changed them; the node is there for its texts.
    pub(super) explain: fn(&Candidate, &Requirements, &EvalContext, &Node) -> String,
}

/// Why a node cannot run a pod: one word in CamelCase, as it is stored in Redis and shown in JSON and events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Reason(&'static str);

impl Reason {
    /// The cluster has no nodes.
    pub const NO_NODES: Self = Self("NoNodes");
    /// Another pod, or another program, has a host port that the pod needs.
    pub const HOST_PORT_TAKEN: Self = Self("HostPortTaken");

    /// The policy of the node refuses what the pod asks of its host.
    pub const NOT_ALLOWED: Self = Self("NotAllowed");

    /// The data of a volume of the pod is on another node, or is being removed.
    pub const VOLUME_ELSEWHERE: Self = Self("VolumeElsewhere");

    /// Several nodes have copies of a volume of the pod that contradict each other.
    pub const VOLUME_CONFLICT: Self = Self("VolumeConflict");

    /// The node has a copy of a volume of the pod that was given up.
    pub const VOLUME_FORMER: Self = Self("VolumeFormer");

    /// The node does not have the directory that nodes share, and a volume of the pod is in it.
    pub const NO_SHARED_DIRECTORY: Self = Self("NoSharedDirectory");

    /// A volume of the pod may have its data on a node that has not told which volumes it has.
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

/// What a filter knows besides the node and the pod.
#[derive(Debug, Clone, Copy)]
pub(super) struct EvalContext {
    /// The time of the decision.
    pub(super) now: RedisMillis,
    /// The longest silence of a ready node.
    pub(super) dead_after: Duration,
}

/// Returns every filter, in the order in which reasons are listed.
pub(super) fn all() -> impl Iterator<Item = &'static NodeFilter> {
    NODE_FILTERS.iter().chain(POD_FILTERS)
}

/// Returns whether the node passes all of `filters`.
pub(super) fn is_feasible(
    filters: &[NodeFilter],
    candidate: &Candidate,
    requirements: &Requirements,
    context: &EvalContext,
) -> bool {
    filters.iter().all(|filter| (filter.is_feasible)(candidate, requirements, context))
}

/// Returns every filter that refuses, not only the first: an operator who fixes one problem must see the
/// next.
pub(super) fn failed<'a>(
    candidate: &'a Candidate,
    requirements: &'a Requirements,
    context: &'a EvalContext,
) -> impl Iterator<Item = &'static NodeFilter> + 'a {
    all().filter(|filter| !(filter.is_feasible)(candidate, requirements, context))
}

#[cfg(test)]
mod tests;
