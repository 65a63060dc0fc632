//! A node needs a free pod slot, and enough of each requested resource.

use model::node::Resource;

use super::types::{NodeFilter, Reason};
use crate::amounts::{bytes_rounded_down, bytes_rounded_up, cores};
use crate::candidate::Candidate;
use crate::requirements::Requirements;

pub(super) const POD_SLOTS: NodeFilter = NodeFilter {
    reason: Reason("TooManyPods"),
    is_feasible: |candidate, _, _| candidate.has_free_slot(),
    explain: |candidate, _, _, _| format!("has {} of {} pods", candidate.used.pods, candidate.capacity.pods),
};

macro_rules! enough_of {
    ($resource:expr, $reason:expr) => {
        NodeFilter {
            reason: $reason,
            is_feasible: |candidate, requirements, _| has_enough($resource, candidate, requirements),
            explain: |candidate, requirements, _, _| explain($resource, candidate, requirements),
        }
    };
}

pub(super) const CPU: NodeFilter = enough_of!(Resource::Cpu, Reason("InsufficientCpu"));
pub(super) const MEMORY: NodeFilter = enough_of!(Resource::Memory, Reason("InsufficientMemory"));
pub(super) const PIDS: NodeFilter = enough_of!(Resource::Pids, Reason("InsufficientPids"));
pub(super) const DISK: NodeFilter = enough_of!(Resource::Disk, Reason("InsufficientDisk"));

fn has_enough(resource: Resource, candidate: &Candidate, requirements: &Requirements) -> bool {
    let needed = requirements.request.get(resource);
    needed == 0 || needed <= candidate.free(resource)
}

fn explain(resource: Resource, candidate: &Candidate, requirements: &Requirements) -> String {
    let (needed, free) = (requirements.request.get(resource), candidate.free(resource));
    let capacity = candidate.capacity.get(resource);
    match resource {
        Resource::Cpu => {
            let unit = if needed == 1000 { "core" } else { "cores" };
            format!("needs {} {unit}, {} of {} free", cores(needed), cores(free), cores(capacity))
        }
        Resource::Memory => {
            let (needed, free) = (bytes_rounded_up(needed), bytes_rounded_down(free));
            format!("needs {needed}, {free} of {} free", bytes_rounded_down(capacity))
        }
        Resource::Pids => format!("needs {needed} processes, {free} of {capacity} free"),
        Resource::Disk => {
            let (needed, free) = (bytes_rounded_up(needed), bytes_rounded_down(free));
            format!("needs {needed} of disk, {free} of {} free", bytes_rounded_down(capacity))
        }
    }
}
