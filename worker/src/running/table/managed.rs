//! Managed pods: those that run here according to Redis, because their payload is in `cs`.

use std::collections::HashMap;

use model::ids::{AssignmentId, PodId};
use tokio::sync::watch;

use super::container::ManagedContainer;
use super::pod::{ManagedPod, ObservedPod};
use crate::running::step::DesiredState;
use health::HealthChange;

#[derive(Default)]
pub(super) struct ManagedPods {
    pods: HashMap<PodId, ManagedPod>,
    last_version: u64,
    changes: watch::Sender<u64>,
}

impl ManagedPods {
    pub(super) fn version(&self) -> u64 {
        self.last_version
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(super) fn len(&self) -> usize {
        self.pods.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ManagedPod> {
        self.pods.values()
    }

    pub(super) fn idle(&self) -> impl Iterator<Item = &ManagedPod> {
        self.pods.values().filter(|managed| !managed.busy)
    }

    pub(super) fn get(&self, pod: &PodId) -> Option<&ManagedPod> {
        self.pods.get(pod)
    }

    pub(super) fn contains(&self, pod: &PodId) -> bool {
        self.pods.contains_key(pod)
    }

    pub(super) fn is_managed_as(&self, pod: &PodId, assignment: &AssignmentId) -> bool {
        self.pods.get(pod).is_some_and(|managed| managed.assignment == *assignment)
    }

    pub(super) fn insert(&mut self, mut managed: ManagedPod) {
        managed.version = self.next_version();
        self.pods.insert(managed.payload.id.clone(), managed);
    }

    pub(super) fn remove(&mut self, pod: &PodId, assignment: &AssignmentId) {
        if self.is_managed_as(pod, assignment) {
            self.next_version();
            self.pods.remove(pod);
        }
    }

    pub(super) fn update<T>(
        &mut self,
        pod: &PodId,
        assignment: &AssignmentId,
        change: impl FnOnce(&mut ManagedPod) -> T,
    ) -> Option<T> {
        let version = self.next_version();
        let managed = self.pods.get_mut(pod).filter(|managed| managed.assignment == *assignment)?;
        managed.version = version;
        Some(change(managed))
    }

    pub(super) fn note_health(&mut self, change: &HealthChange) -> Option<PodId> {
        let version = self.next_version();
        let is_it = |container: &ManagedContainer| {
            container.handle.as_ref() == Some(&change.handle)
                && container.running_since == Some(change.started)
        };
        let managed = self.pods.values_mut().find(|managed| managed.containers.iter().any(is_it))?;
        let container = managed.containers.iter_mut().find(|container| is_it(container))?;
        container.checks.note(change);
        managed.version = version;
        managed.is_reported = false;
        Some(managed.payload.id.clone())
    }

    /// False if the pod has changed since it was `seen`, or has an action.
    pub(super) fn mark_busy(&mut self, seen: &ManagedPod) -> bool {
        let found = self.pods.get_mut(&seen.payload.id);
        match found.filter(|managed| managed.version == seen.version && !managed.busy) {
            Some(managed) => {
                managed.busy = true;
                true
            }
            None => false,
        }
    }

    pub(super) fn note_observed(
        &mut self,
        seen: &ManagedPod,
        observed: &ObservedPod<'_>,
    ) -> Option<ManagedPod> {
        let version = self.next_version();
        let found = self.pods.get_mut(&seen.payload.id);
        let managed = found.filter(|managed| managed.version == seen.version && !managed.busy)?;
        managed.version = version;
        managed.note_observed(observed);
        Some(managed.clone())
    }

    pub(super) fn request_stop(&mut self, pod: &PodId) -> bool {
        let version = self.next_version();
        let Some(managed) = self.pods.get_mut(pod) else { return false };
        if managed.desired == DesiredState::Run {
            managed.desired = DesiredState::Stop;
            managed.version = version;
            managed.retry_at = None;
            for container in &mut managed.containers {
                container.restart_at = None;
            }
        }
        true
    }

    pub(super) fn mark_foreign(&mut self, pod: &PodId, assignment: &AssignmentId) -> bool {
        let version = self.next_version();
        match self.pods.get_mut(pod).filter(|managed| managed.assignment == *assignment) {
            Some(managed) => {
                managed.discard(version);
                true
            }
            None => false,
        }
    }

    pub(super) fn make_way(&mut self, pod: &PodId, assignment: &AssignmentId) -> StartCheck {
        let version = self.next_version();
        let Some(managed) = self.pods.get_mut(pod) else { return StartCheck::Free };
        if managed.assignment != *assignment {
            managed.discard(version);
            return StartCheck::Occupied;
        }
        if managed.busy {
            return StartCheck::Busy;
        }
        self.pods.remove(pod);
        StartCheck::Free
    }

    fn next_version(&mut self) -> u64 {
        self.last_version += 1;
        // A woken task waits for the table's lock.
        self.changes.send_replace(self.last_version);
        self.last_version
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartCheck {
    Free,
    Occupied,
    /// The action may end in another assignment.
    Busy,
}
