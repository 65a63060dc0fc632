//! A managed pod: what it is to be, and what this worker knows of its containers.

use std::collections::BTreeMap;
use std::sync::Arc;

use daemon::clock::BootInstant;
use engine::{Container, ContainerRequest, ContainerState, Identity};
use model::ids::{AssignmentId, ContainerName, NodeName, ServiceName};
use model::network::ContainerNetwork;
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use model::pod::{ContainerProgress, EndedRun};
use model::spec::{ContainerSpec, JOB_INDEX, Kind, PodSpec};
use store::saved_state::SavedPod;

use super::container::ManagedContainer;
use crate::running::step::DesiredState;
use crate::worker::Worker;

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
    /// The engine's handle of the container that holds the network of the others, if it has one.
    pub(crate) sandbox: Option<String>,
    /// Its containers are not started again before the services are there that its service depends on; what
    /// is missing, once that was looked at.
    pub(crate) waits_for: Option<String>,
    /// No action is tried before this moment, because the last one failed.
    pub(crate) retry_at: Option<BootInstant>,
    /// Where it can be reached, as far as is known.
    pub(crate) network: ContainerNetwork,
    /// The epochs of the persistent volumes that its containers create, by their sources.
    pub(crate) volume_epochs: BTreeMap<String, u64>,
    /// What was in flight when it was to be stopped, and how that ended, in a sentence.
    pub(crate) drained: Option<String>,
    /// Runs of its containers that have ended and are to be reported.
    pub(crate) runs: Vec<EndedRun>,
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
            sandbox: None,
            waits_for: None,
            retry_at: None,
            network: ContainerNetwork::default(),
            volume_epochs: BTreeMap::new(),
            drained: None,
            runs: Vec::new(),
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

    /// Sorts the containers that were found by what they are in the pod.
    pub(crate) fn observe<'a>(&self, found: &[&'a Container]) -> ObservedPod<'a> {
        let named =
            |name: Option<&ContainerName>| found.iter().find(|one| one.name.as_ref() == name).copied();
        match self.spec.containers.as_slice() {
            // Also after its specification was lost, of which the name was a part.
            [_] => ObservedPod { containers: vec![found.first().copied()], sandbox: None },
            several => ObservedPod {
                containers: several.iter().map(|container| named(container.name.as_ref())).collect(),
                sandbox: named(None),
            },
        }
    }

    /// Returns whether [`ManagedPod::note_observed`] would change anything.
    pub(crate) fn is_news(&self, observed: &ObservedPod<'_>) -> bool {
        let known = self.containers.iter().map(|container| (&container.handle, container.progress));
        let found = observed.handles_and_progress();
        let is_changed = !known.eq(found.iter().map(|(handle, progress)| (handle, *progress)));
        let network = observed.network();
        let is_well = |container: &ManagedContainer| {
            container.progress == ContainerProgress::Running && container.has_recovered()
        };
        is_changed
            || !self.containers.iter().map(|container| container.is_paused).eq(observed.paused())
            || self.containers.iter().any(is_well)
            || self.sandbox != observed.sandbox_handle()
            || network.is_some_and(|network| *network != self.network)
    }

    /// Notes how far its containers are, and where they can be found and reached now: with each start the
    /// engine may choose another address and other ports.
    pub(crate) fn note_observed(&mut self, observed: &ObservedPod<'_>) {
        // The status of the only container is that of the pod.
        let has_progress = self.has_several();
        for (container, (handle, progress)) in self.containers.iter_mut().zip(observed.handles_and_progress())
        {
            container.handle = handle;
            self.is_reported &= !has_progress || container.progress == progress;
            container.progress = progress;
            if progress == ContainerProgress::Running && container.has_recovered() {
                container.was_unhealthy = false;
            }
        }
        for (container, is_paused) in self.containers.iter_mut().zip(observed.paused()) {
            self.is_reported &= container.is_paused == is_paused;
            container.is_paused = is_paused;
        }
        self.sandbox = observed.sandbox_handle();
        if let Some(network) = observed.network().filter(|network| **network != self.network) {
            self.network = network.clone();
            self.is_reported = false;
        }
    }

    /// Returns the engine's handles of its containers and its sandbox, as far as they are known.
    pub(crate) fn handles(&self) -> impl Iterator<Item = &String> {
        self.containers.iter().filter_map(|container| container.handle.as_ref()).chain(&self.sandbox)
    }

    /// Returns the request for one of its containers.
    pub(crate) fn request(&self, worker: &Worker, index: usize) -> Option<ContainerRequest> {
        let spec = self.spec.containers.get(index)?;
        let name = spec.name.clone().filter(|_| self.has_several());
        // The node's default limit is none below what is reserved.
        let default = worker
            .default_memory
            .map(|limit| spec.memory_reservation.map_or(limit, |least| limit.max(least)));
        let memory = spec.memory.or(default);
        let mut environment = spec.environment.clone();
        if self.spec.kind == Kind::Job {
            environment.insert(JOB_INDEX, self.payload.replica.to_string()).ok();
        }
        Some(ContainerRequest {
            identity: Identity { container: name, ..self.identity(worker) },
            container: ContainerSpec { memory, environment, ..spec.clone() },
            sandbox: self.sandbox.clone(),
            files: Vec::new(),
            volume_epochs: self.volume_epochs.clone(),
        })
    }

    /// Returns the identity of the pod, and of its only container or its sandbox.
    pub(crate) fn identity(&self, worker: &Worker) -> Identity {
        let owner = (worker.identity.cluster(), &worker.node);
        Identity::of_pod(owner, (&self.payload, &self.spec), self.service.as_ref(), &self.assignment)
    }

    /// Returns whether it has several containers, which are told apart by their names.
    pub(crate) fn has_several(&self) -> bool {
        self.spec.containers.len() > 1
    }

    /// Returns whether its containers share a network, which a sandbox holds.
    pub(crate) fn uses_sandbox(&self, worker: &Worker) -> bool {
        self.has_several() && worker.runtime.has_sandboxes()
    }

    /// Returns how often its containers were started again, all together.
    pub(super) fn restarts(&self) -> u32 {
        self.containers.iter().map(|container| container.restarts).sum()
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
            restarts: self.restarts(),
            address: String::new(),
            published_ports: Vec::new(),
            created_at: 0,
            since: 0,
            runs: Vec::new(),
        }
    }

    /// It belongs to another node.
    pub(super) fn discard(&mut self, version: u64) {
        if self.desired != DesiredState::Discard {
            self.desired = DesiredState::Discard;
            self.version = version;
            self.retry_at = None;
        }
    }
}

/// The containers of a pod that were found on the engine.
pub(crate) struct ObservedPod<'a> {
    /// In the order of the specification.
    pub(crate) containers: Vec<Option<&'a Container>>,
    /// The container that holds the network of the others, if there are several.
    pub(crate) sandbox: Option<&'a Container>,
}

impl<'a> ObservedPod<'a> {
    fn handles_and_progress(&self) -> Vec<(Option<String>, ContainerProgress)> {
        let of_one = |found: &Option<&Container>| {
            let progress = progress_of(found.map(|container| container.state));
            (found.map(|container| container.handle.clone()), progress)
        };
        self.containers.iter().map(of_one).collect()
    }

    fn paused(&self) -> impl Iterator<Item = bool> {
        self.containers.iter().map(|found| found.is_some_and(|container| container.is_paused))
    }

    fn sandbox_handle(&self) -> Option<String> {
        self.sandbox.map(|sandbox| sandbox.handle.clone())
    }

    /// Returns where the pod can be reached, if the engine tells.
    fn network(&self) -> Option<&'a ContainerNetwork> {
        let only = || self.containers.first().copied().flatten().filter(|_| self.containers.len() == 1);
        self.sandbox.or_else(only).and_then(|container| container.network.as_ref())
    }
}

/// Returns how far a container in this state is; `None`: it does not exist.
fn progress_of(state: Option<ContainerState>) -> ContainerProgress {
    match state {
        None | Some(ContainerState::Created) => ContainerProgress::Waiting,
        Some(ContainerState::Running | ContainerState::Unknown) => ContainerProgress::Running,
        Some(ContainerState::Exited { .. }) => ContainerProgress::Ended,
    }
}
