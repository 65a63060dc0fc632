//! A managed pod: its desired state, and the state of its containers.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use daemon::clock::BootInstant;
use engine::{Container, ContainerRequest, ContainerState, Identity};
use model::ids::{AssignmentId, ContainerName, NodeName, ServiceName};
use model::network::ContainerNetwork;
use model::node::ResourceIds;
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use model::pod::{ContainerProgress, EndedRun};
use model::spec::{ContainerSpec, JOB_INDEX, Kind, PodSpec};
use store::saved_state::SavedPod;

use super::container::ManagedContainer;
use crate::running::step::DesiredState;
use crate::worker::Worker;

#[derive(Debug, Clone)]
pub(crate) struct ManagedPod {
    pub(crate) payload: Payload,
    pub(crate) service: Option<ServiceName>,
    pub(crate) assignment: AssignmentId,
    pub(crate) spec: Arc<PodSpec>,
    pub(crate) desired: DesiredState,
    pub(crate) busy: bool,
    /// Grows with each change, so that outdated observations are not acted on.
    pub(crate) version: u64,
    pub(crate) containers: Vec<ManagedContainer>,
    pub(crate) sandbox: Option<String>,
    /// Containers restart only after these services are there.
    pub(crate) waits_for: Option<String>,
    pub(crate) retry_at: Option<BootInstant>,
    pub(crate) network: ContainerNetwork,
    pub(crate) volume_epochs: BTreeMap<String, u64>,
    pub(crate) resource_ids: ResourceIds,
    pub(crate) drained: Option<String>,
    pub(crate) runs: Vec<EndedRun>,
    pub(crate) is_reported: bool,
}

impl ManagedPod {
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
            resource_ids: ResourceIds::default(),
            drained: None,
            runs: Vec::new(),
            is_reported: true,
        }
    }

    pub(crate) fn containers(&self) -> impl Iterator<Item = (&ContainerSpec, &ManagedContainer)> {
        self.spec.containers.iter().zip(&self.containers)
    }

    pub(crate) fn change_container(&mut self, index: usize, change: impl FnOnce(&mut ManagedContainer)) {
        if let Some(container) = self.containers.get_mut(index) {
            change(container);
            self.is_reported = false;
        }
    }

    pub(crate) fn running_since(&self) -> Option<BootInstant> {
        self.containers.iter().filter_map(|container| container.running_since).min()
    }

    pub(crate) fn observe<'a>(&self, found: &[&'a Container]) -> ObservedPod<'a> {
        let named =
            |name: Option<&ContainerName>| found.iter().find(|one| one.name.as_ref() == name).copied();
        match self.spec.containers.as_slice() {
            // Even after its specification was lost.
            [_] => ObservedPod { containers: vec![found.first().copied()], sandbox: None },
            several => ObservedPod {
                containers: several.iter().map(|container| named(container.name.as_ref())).collect(),
                sandbox: named(None),
            },
        }
    }

    pub(crate) fn is_news(&self, observed: &ObservedPod<'_>) -> bool {
        let known = self.containers.iter().map(|container| (&container.handle, container.progress));
        let found = observed.handles_and_progress();
        let is_changed = !known.eq(found.iter().map(|(handle, progress)| (handle, *progress)));
        let network = observed.network();
        let is_well = |container: &ManagedContainer| {
            container.progress == ContainerProgress::Running && container.is_healthy_again()
        };
        is_changed
            || !self.containers.iter().map(|container| container.is_paused).eq(observed.paused())
            || self.containers.iter().any(is_well)
            || self.sandbox != observed.sandbox_handle()
            || network.is_some_and(|network| *network != self.network)
    }

    /// With each start the engine may choose another address and other ports.
    pub(crate) fn note_observed(&mut self, observed: &ObservedPod<'_>) {
        // The only container has the pod's status.
        let has_progress = self.has_several();
        for (container, (handle, progress)) in self.containers.iter_mut().zip(observed.handles_and_progress())
        {
            container.handle = handle;
            self.is_reported &= !has_progress || container.progress == progress;
            container.progress = progress;
            if progress == ContainerProgress::Running && container.is_healthy_again() {
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

    pub(crate) fn handles(&self) -> impl Iterator<Item = &String> {
        self.containers.iter().filter_map(|container| container.handle.as_ref()).chain(&self.sandbox)
    }

    pub(crate) fn request(&self, worker: &Worker, index: usize) -> Option<ContainerRequest> {
        let spec = self.spec.containers.get(index)?;
        let name = spec.name.clone().filter(|_| self.has_several());
        // The node's default limit must not be below the reservation.
        let default = worker
            .default_memory
            .map(|limit| spec.memory_reservation.map_or(limit, |least| limit.max(least)));
        let memory = spec.memory.or(default);
        let mut environment = spec.environment.clone();
        if self.spec.kind == Kind::Job {
            environment.insert(JOB_INDEX, self.payload.replica.to_string()).ok();
        }
        for (name, ids) in self.resource_ids.environment() {
            environment.insert(&name, ids).ok();
        }
        Some(ContainerRequest {
            identity: Identity { container: name, ..self.identity(worker) },
            container: ContainerSpec { memory, environment, ..spec.clone() },
            sandbox: self.sandbox.clone(),
            files: Vec::new(),
            volume_epochs: self.volume_epochs.clone(),
        })
    }

    pub(crate) fn identity(&self, worker: &Worker) -> Identity {
        let owner = (worker.identity.cluster(), &worker.node);
        let resources = self.resource_ids.clone();
        let of_pod =
            Identity::of_pod(owner, (&self.payload, &self.spec), self.service.as_ref(), &self.assignment);
        Identity { resources, ..of_pod }
    }

    pub(crate) fn address(&self, uses_host_network: bool) -> Option<IpAddr> {
        match uses_host_network {
            true => Some(Ipv4Addr::LOCALHOST.into()),
            false => self.network.address.parse().ok(),
        }
    }

    pub(crate) fn has_several(&self) -> bool {
        self.spec.containers.len() > 1
    }

    pub(crate) fn uses_sandbox(&self, worker: &Worker) -> bool {
        self.has_several() && worker.runtime.has_sandboxes()
    }

    pub(super) fn restarts(&self) -> u32 {
        self.containers.iter().map(|container| container.restarts).sum()
    }

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
            resource_ids: self.resource_ids.clone(),
            created_at: 0,
            since: 0,
            runs: Vec::new(),
        }
    }

    pub(super) fn discard(&mut self, version: u64) {
        if self.desired != DesiredState::Discard {
            self.desired = DesiredState::Discard;
            self.version = version;
            self.retry_at = None;
        }
    }
}

pub(crate) struct ObservedPod<'a> {
    /// In the order of the specification.
    pub(crate) containers: Vec<Option<&'a Container>>,
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

    fn network(&self) -> Option<&'a ContainerNetwork> {
        let only = || self.containers.first().copied().flatten().filter(|_| self.containers.len() == 1);
        self.sandbox.or_else(only).and_then(|container| container.network.as_ref())
    }
}

fn progress_of(state: Option<ContainerState>) -> ContainerProgress {
    match state {
        None | Some(ContainerState::Created) => ContainerProgress::Waiting,
        Some(ContainerState::Running | ContainerState::Unknown) => ContainerProgress::Running,
        Some(ContainerState::Exited { .. }) => ContainerProgress::Ended,
    }
}
