//! Containers without a managed pod: in removal, or of ended pods and kept for their logs.

use std::collections::{HashMap, HashSet};

use daemon::clock::BootInstant;
use model::ids::{AssignmentId, PodId};
use model::pod::lifecycle::Phase;

#[derive(Debug, Clone)]
pub(crate) struct EndedPod {
    pub(crate) pod: PodId,
    pub(crate) assignment: AssignmentId,
    pub(crate) phase: Phase,
    pub(crate) ended_at: BootInstant,
}

#[derive(Default)]
pub(super) struct Leftovers {
    removing: HashMap<String, PodId>,
    /// Oldest first.
    ended: Vec<EndedPod>,
}

impl Leftovers {
    pub(super) fn begin_removal(&mut self, handle: &str, pod: &PodId) -> bool {
        self.removing.insert(handle.to_owned(), pod.clone()).is_none()
    }

    pub(super) fn end_removal(&mut self, handle: &str) {
        self.removing.remove(handle);
    }

    pub(super) fn is_removing(&self, handle: &str) -> bool {
        self.removing.contains_key(handle)
    }

    pub(super) fn is_removing_container_of(&self, pod: &PodId) -> bool {
        self.removing.values().any(|removing| removing == pod)
    }

    pub(super) fn keep(&mut self, ended: EndedPod) {
        let at = self.ended.partition_point(|other| other.ended_at <= ended.ended_at);
        self.ended.insert(at, ended);
    }

    pub(super) fn release(&mut self, pod: &PodId, assignment: &AssignmentId) {
        self.ended.retain(|ended| ended.pod != *pod || ended.assignment != *assignment);
    }

    pub(super) fn is_kept(&self, pod: &PodId, assignment: &AssignmentId) -> bool {
        self.ended.iter().any(|ended| ended.pod == *pod && ended.assignment == *assignment)
    }

    pub(super) fn ended(&self) -> &[EndedPod] {
        &self.ended
    }

    pub(super) fn expire(&mut self, max: usize, before: BootInstant) -> HashSet<(PodId, AssignmentId)> {
        let surplus = self.ended.len().saturating_sub(max);
        let old = self.ended.iter().filter(|ended| ended.ended_at < before).count();
        let expired = self.ended.drain(..surplus.max(old));
        expired.map(|ended| (ended.pod, ended.assignment)).collect()
    }
}
