//! Managed pods: those that run here as far as Redis is concerned, because their payload is in `cs`.

use std::collections::HashMap;
use std::sync::Arc;

use common::clock::BootInstant;
use common::ids::{AssignmentId, NodeName, PodId, ServiceName};
use common::lifecycle::Phase;
use common::network::ContainerNetwork;
use common::payload::Payload;
use common::saved_state::SavedPod;
use common::spec::{ContainerSpec, PodSpec};

use super::container::ManagedContainer;
use crate::runtime::Container;
use crate::step::DesiredState;

/// A pod that was acknowledged here, or found in `cs` after a restart of the worker.
#[derive(Debug, Clone)]
pub(crate) struct ManagedPod {
    pub(crate) payload: Payload,
    pub(crate) service: Option<ServiceName>,
    pub(crate) assignment: AssignmentId,
    pub(crate) spec: Arc<PodSpec>,
    pub(crate) desired: DesiredState,
    /// An action on this pod is under way; no other one may begin.
    pub(crate) busy: bool,
    /// Grows with each change, so that an observation made before a change is not acted on after it.
    pub(crate) version: u64,
    /// Its containers, in the order of the specification.
    pub(crate) containers: Vec<ManagedContainer>,
    /// No action is tried before this moment, because the last one failed.
    pub(crate) retry_at: Option<BootInstant>,
    /// Where it can be reached, as far as is known.
    pub(crate) network: ContainerNetwork,
    /// Whether Redis has the current status and network.
    pub(crate) is_reported: bool,
}

impl ManagedPod {
    /// A pod that is to run and has nothing to report.
    pub(crate) fn new(
        payload: Payload,
        service: Option<ServiceName>,
        assignment: AssignmentId,
        spec: Arc<PodSpec>,
    ) -> Self {
        let containers = vec![ManagedContainer::default(); spec.containers.len()];
        Self {
            payload,
            service,
            assignment,
            spec,
            desired: DesiredState::Run,
            busy: false,
            version: 0,
            containers,
            retry_at: None,
            network: ContainerNetwork::default(),
            is_reported: true,
        }
    }

    /// Returns its containers as they are to be and as they are.
    pub(crate) fn containers(&self) -> impl Iterator<Item = (&ContainerSpec, &ManagedContainer)> {
        self.spec.containers.iter().zip(&self.containers)
    }

    /// Changes one of its containers; the status is to be reported to Redis.
    pub(crate) fn change_container(&mut self, index: usize, change: impl FnOnce(&mut ManagedContainer)) {
        if let Some(container) = self.containers.get_mut(index) {
            change(container);
            self.is_reported = false;
        }
    }

    /// Returns since when the first of its containers runs, as far as is known.
    pub(crate) fn running_since(&self) -> Option<BootInstant> {
        self.containers.iter().filter_map(|container| container.running_since).min()
    }

    /// Returns, for each of its containers, the one that was found.
    pub(crate) fn observe<'a>(&self, found: &[&'a Container]) -> Vec<Option<&'a Container>> {
        self.spec.containers.iter().map(|_| found.first().copied()).collect()
    }

    /// Returns whether [`ManagedPod::note_observed`] would change anything.
    pub(crate) fn is_news(&self, observed: &[Option<&Container>]) -> bool {
        let handles = observed.iter().map(|container| container.map(|found| found.handle.as_str()));
        let known = self.containers.iter().map(|container| container.handle.as_deref());
        !known.eq(handles) || network_of(observed).is_some_and(|network| *network != self.network)
    }

    /// Notes where its containers can be found and reached now: with each start the engine may choose another
    /// address and other ports.
    pub(crate) fn note_observed(&mut self, observed: &[Option<&Container>]) {
        for (container, found) in self.containers.iter_mut().zip(observed) {
            container.handle = found.map(|found| found.handle.clone());
        }
        if let Some(network) = network_of(observed).filter(|network| **network != self.network) {
            self.network = network.clone();
            self.is_reported = false;
        }
    }

    /// Returns the status that is to be reported: of the first container that is not well.
    pub(crate) fn status(&self) -> PodStatus {
        let unwell = self.containers.iter().find(|container| !container.reason.is_empty());
        let exited = unwell.or_else(|| self.containers.iter().find(|one| one.exit_code.is_some()));
        PodStatus {
            reason: unwell.map_or("", |container| container.reason),
            message: unwell.map_or_else(String::new, |container| container.message.clone()),
            restarts: self.containers.iter().map(|container| container.restarts).sum(),
            exit_code: exited.and_then(|container| container.exit_code),
        }
    }

    /// Returns what is to be saved of it.
    pub(super) fn to_save(&self, node: &NodeName) -> SavedPod {
        let phase = if self.desired == DesiredState::Stop { Phase::Stopping } else { Phase::Running };
        SavedPod {
            // A payload is UTF-8, or it was no pod.
            payload: String::from_utf8_lossy(&self.payload.raw).into_owned(),
            service: self.service.clone(),
            phase,
            node: Some(node.clone()),
            assignment: Some(self.assignment.clone()),
            generation: 0,
            restarts: self.status().restarts,
            address: String::new(),
            published_ports: Vec::new(),
            created_at: 0,
        }
    }

    fn discard(&mut self, version: u64) {
        if self.desired != DesiredState::Discard {
            self.desired = DesiredState::Discard;
            self.version = version;
            self.retry_at = None;
        }
    }
}

/// Returns where a pod can be reached, as its first container that tells it says.
fn network_of<'a>(observed: &[Option<&'a Container>]) -> Option<&'a ContainerNetwork> {
    observed.iter().flatten().find_map(|container| container.network.as_ref())
}

/// What a status report says about a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PodStatus {
    /// One word in CamelCase; empty if the pod is well.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) restarts: u32,
    pub(crate) exit_code: Option<i64>,
}

/// All managed pods of a session.
#[derive(Default)]
pub(super) struct ManagedPods {
    pods: HashMap<PodId, ManagedPod>,
    last_version: u64,
}

impl ManagedPods {
    /// Returns a number that grows with each change.
    pub(super) fn version(&self) -> u64 {
        self.last_version
    }

    pub(super) fn len(&self) -> usize {
        self.pods.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ManagedPod> {
        self.pods.values()
    }

    /// Returns the pods without an action under way.
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
            self.last_version += 1;
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

    /// See [`super::PodTable::note_observed`].
    pub(super) fn note_observed(
        &mut self,
        seen: &ManagedPod,
        observed: &[Option<&Container>],
    ) -> Option<ManagedPod> {
        let version = self.next_version();
        let found = self.pods.get_mut(&seen.payload.id);
        let managed = found.filter(|managed| managed.version == seen.version && !managed.busy)?;
        managed.version = version;
        managed.note_observed(observed);
        Some(managed.clone())
    }

    /// The pod is to be stopped. Returns whether it is managed.
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

    /// The pod under this assignment belongs to another node. Returns whether it is managed under it.
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

    /// Makes way for a start of `pod` under `assignment`; see [`super::PodTable::can_start`].
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
        self.last_version
    }
}

/// Whether a pod can be started now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartCheck {
    /// Nothing is in the way.
    Free,
    /// A container of an older assignment has to go first.
    Occupied,
    /// An action on the pod under this very assignment is under way. It may end in another assignment.
    Busy,
}
