//! A node needs a free pod slot, and as much free CPU and memory as the pod requests. A pod that requests
//! none of a resource fits even on a node where that resource is overcommitted.

use super::{NodeFilter, Reason};
use crate::decide::amounts::{bytes_rounded_down, bytes_rounded_up, cores};

pub(super) const POD_SLOTS: NodeFilter = NodeFilter {
    reason: Reason("TooManyPods"),
    is_feasible: |candidate, _, _| candidate.free().pods > 0,
    explain: |candidate, _, _, _| format!("has {} of {} pods", candidate.used.pods, candidate.capacity.pods),
};

pub(super) const CPU: NodeFilter = NodeFilter {
    reason: Reason("InsufficientCpu"),
    is_feasible: |candidate, requirements, _| {
        let needed = requirements.cpu_millis;
        needed == 0 || needed <= candidate.free().cpu_millis
    },
    explain: |candidate, requirements, _, _| {
        let needed = cores(requirements.cpu_millis);
        let free = cores(candidate.free().cpu_millis);
        let unit = if needed == 1.0 { "core" } else { "cores" };
        format!("needs {needed} {unit}, {free} of {} free", cores(candidate.capacity.cpu_millis))
    },
};

pub(super) const MEMORY: NodeFilter = NodeFilter {
    reason: Reason("InsufficientMemory"),
    is_feasible: |candidate, requirements, _| {
        let needed = requirements.memory_bytes;
        needed == 0 || needed <= candidate.free().memory_bytes
    },
    explain: |candidate, requirements, _, _| {
        let needed = bytes_rounded_up(requirements.memory_bytes);
        let free = bytes_rounded_down(candidate.free().memory_bytes);
        format!("needs {needed}, {free} of {} free", bytes_rounded_down(candidate.capacity.memory_bytes))
    },
};
