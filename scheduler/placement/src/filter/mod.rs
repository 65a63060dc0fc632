//! The filters: each decides whether a node can run a pod, and explains why not.
//!
//! To add one, write `filter/<name>.rs` with a [`NodeFilter`], and add it to [`NODE_FILTERS`] or
//! [`POD_FILTERS`]. It takes facts through [`Candidate`] or [`Requirements`].

mod constraints;
mod cordoned;
mod disk_pressure;
mod engine;
mod external_worker;
mod host_access;
mod host_ports;
mod named_resources;
mod ready;
mod resources;
mod shared_directory;
mod types;
mod volumes;
mod worker_form;
mod zone;

use model::spec::PlacementProfile;

use crate::candidate::Candidate;
use crate::profile;
use crate::requirements::Requirements;

pub use types::Reason;
pub(crate) use types::{EvalContext, NodeFilter};

/// A node that fails one gets no pod of this batch.
pub(crate) const NODE_FILTERS: &[NodeFilter] =
    &[ready::READY, cordoned::SCHEDULABLE, engine::HEALTHY, disk_pressure::HAS_ROOM];

/// A refusal holds for the rest of the batch.
pub(crate) const POD_FILTERS: &[NodeFilter] = &[
    resources::POD_SLOTS,
    resources::CPU,
    resources::MEMORY,
    resources::PIDS,
    resources::DISK,
    host_ports::FREE,
    named_resources::ENOUGH_IDS,
    host_access::ALLOWED,
    constraints::SATISFIED,
    zone::KNOWN,
    zone::OF_ORDINAL,
    worker_form::READS_IT,
    external_worker::IMAGE_ONLY,
    volumes::DATA_IS_HERE,
    volumes::PLACE_IS_KNOWN,
    volumes::COPIES_AGREE,
    volumes::NOTHING_GIVEN_UP,
    shared_directory::READY,
];

/// Filters of pods with this profile.
pub(crate) fn all(profile: PlacementProfile) -> impl Iterator<Item = &'static NodeFilter> {
    NODE_FILTERS.iter().chain(POD_FILTERS).chain(profile::filters(profile))
}

/// Inlined, the calls through the table become direct ones: a third of a decision.
#[inline(always)]
pub(crate) fn is_feasible(
    filters: &[NodeFilter],
    candidate: &Candidate,
    requirements: &Requirements,
    context: &EvalContext,
) -> bool {
    filters.iter().all(|filter| (filter.is_feasible)(candidate, requirements, context))
}

/// Whether the node could take such a pod, if it had room: then its domains count in rules of `spread`.
pub(crate) fn is_domain(candidate: &Candidate, requirements: &Requirements, context: &EvalContext) -> bool {
    is_feasible(NODE_FILTERS, candidate, requirements, context)
        && (constraints::SATISFIED.is_feasible)(candidate, requirements, context)
}

/// An operator who fixes one problem must see the next.
pub(crate) fn failed<'a>(
    candidate: &'a Candidate,
    requirements: &'a Requirements,
    context: &'a EvalContext,
) -> impl Iterator<Item = &'static NodeFilter> + 'a {
    all(requirements.profile).filter(|filter| !(filter.is_feasible)(candidate, requirements, context))
}

#[cfg(test)]
mod tests;
