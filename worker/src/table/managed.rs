//! Managed pods: those that run here as far as Redis is concerned, because their payload is in `cs`.

use std::collections::HashMap;
use std::time::Duration;

use common::clock::BootInstant;
use common::ids::{AssignmentId, NodeName, PodId, ServiceName};
use common::lifecycle::Phase;
use common::network::ContainerNetwork;
use common::payload::Payload;
use common::saved_state::SavedPod;
use common::spec::{OnDisconnect, PodSpec, RestartPolicy};

use crate::step::DesiredState;

/// The reason of a pod whose container was started again after an exit, until it has run for a while.
pub(crate) const RESTARTED: &str = "Restarted";

/// A pod that was acknowledged here, or found in `cs` after a restart of the worker.
#[derive(Debug, Clone)]
pub(crate) struct ManagedPod {
    pub(crate) payload: Payload,
    pub(crate) service: Option<ServiceName>,
    pub(crate) assignment: AssignmentId,
    pub(crate) rules: PodRules,
    pub(crate) desired: DesiredState,
    /// An action on this pod is under way; no other one may begin.
    pub(crate) busy: bool,
    /// Grows with each change, so that an observation made before a change is not acted on after it.
    pub(crate) version: u64,
    /// How often its container was started again, over the pod's whole life.
    pub(crate) restarts: u32,
    /// Exits in a row without a healthy run between them.
    pub(crate) crash_streak: u32,
    /// Since when its container runs, as far as is known.
    pub(crate) running_since: Option<BootInstant>,
    /// When its exited container is to be started again.
    pub(crate) restart_at: Option<BootInstant>,
    /// No action is tried before this moment, because the last one failed.
    pub(crate) retry_at: Option<BootInstant>,
    /// Where its container can be reached, as far as is known.
    pub(crate) network: ContainerNetwork,
    pub(crate) status: PodStatus,
    /// Whether Redis has the current status and network.
    pub(crate) is_reported: bool,
}

impl ManagedPod {
    /// A pod that is to run and has nothing to report.
    pub(crate) fn new(
        payload: Payload,
        service: Option<ServiceName>,
        assignment: AssignmentId,
        rules: PodRules,
    ) -> Self {
        Self {
            payload,
            service,
            assignment,
            rules,
            desired: DesiredState::Run,
            busy: false,
            version: 0,
            restarts: 0,
            crash_streak: 0,
            running_since: None,
            restart_at: None,
            retry_at: None,
            network: ContainerNetwork::default(),
            status: PodStatus::default(),
            is_reported: true,
        }
    }

    /// Changes the status; it is to be reported to Redis.
    pub(crate) fn set_status(&mut self, status: PodStatus) {
        self.is_reported = false;
        self.status = status;
    }

    /// Changes the reason and message of the status; restarts are as counted, and the last exit code stays.
    pub(crate) fn set_reason(&mut self, reason: &'static str, message: String) {
        let (restarts, exit_code) = (self.restarts, self.status.exit_code);
        self.set_status(PodStatus { reason, message, restarts, exit_code });
    }

    /// Whether it was started again after an exit and has not counted as well since then.
    pub(crate) fn is_recovering(&self) -> bool {
        self.status.reason == RESTARTED
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
            restarts: self.restarts,
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

/// What of a pod's specification matters after its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PodRules {
    pub(crate) restart: RestartPolicy,
    pub(crate) on_disconnect: OnDisconnect,
    pub(crate) grace: Duration,
}

impl PodRules {
    pub(crate) fn of(spec: &PodSpec) -> Self {
        let restart = spec.containers.first().map(|container| container.restart).unwrap_or_default();
        Self { restart, on_disconnect: spec.on_disconnect, grace: spec.grace() }
    }
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

    /// See [`super::PodTable::set_network`].
    pub(super) fn set_network(&mut self, seen: &ManagedPod, network: ContainerNetwork) -> Option<ManagedPod> {
        let version = self.next_version();
        let found = self.pods.get_mut(&seen.payload.id);
        let managed = found.filter(|managed| managed.version == seen.version && !managed.busy)?;
        managed.version = version;
        managed.network = network;
        // The report has both, and a pod that was read back from Redis has only counted its restarts so far.
        managed.status.restarts = managed.restarts;
        managed.is_reported = false;
        Some(managed.clone())
    }

    /// The pod is to be stopped. Returns whether it is managed.
    pub(super) fn request_stop(&mut self, pod: &PodId) -> bool {
        let version = self.next_version();
        let Some(managed) = self.pods.get_mut(pod) else { return false };
        if managed.desired == DesiredState::Run {
            managed.desired = DesiredState::Stop;
            managed.version = version;
            managed.restart_at = None;
            managed.retry_at = None;
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
