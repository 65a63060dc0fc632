//! Room for a pod: a slot, and as much CPU and memory as it asks for. A pod that asks for none fits even a node that
//! has more set aside than it has.

use super::{Filter, Reason};
use crate::decide::amounts::{bytes_down, bytes_up, cores};

pub(super) const PODS: Filter = Filter {
    reason: Reason::TooManyPods,
    passes: |candidate, need, _| need.pods <= candidate.free().pods,
    explain: |candidate, _, _, _| format!("has {} of {} pods", candidate.used.pods, candidate.capacity.pods),
};

pub(super) const CPU: Filter = Filter {
    reason: Reason::InsufficientCpu,
    passes: |candidate, need, _| {
        let need = need.cpu_millis;
        need == 0 || need <= candidate.free().cpu_millis
    },
    explain: |candidate, need, _, _| {
        let (need, free) = (cores(need.cpu_millis), cores(candidate.free().cpu_millis));
        let unit = if need == 1.0 { "core" } else { "cores" };
        format!("needs {need} {unit}, {free} of {} free", cores(candidate.capacity.cpu_millis))
    },
};

pub(super) const MEMORY: Filter = Filter {
    reason: Reason::InsufficientMemory,
    passes: |candidate, need, _| {
        let need = need.memory_bytes;
        need == 0 || need <= candidate.free().memory_bytes
    },
    explain: |candidate, need, _, _| {
        let (need, free) = (bytes_up(need.memory_bytes), bytes_down(candidate.free().memory_bytes));
        format!("needs {need}, {free} of {} free", bytes_down(candidate.capacity.memory_bytes))
    },
};
