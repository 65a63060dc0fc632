//! One node of the simulated engine, and its containers.

use std::collections::BTreeMap;

use model::spec::StopSignal;
use tokio::sync::broadcast;

use crate::volume::requested;
use crate::{Container, ContainerRequest, ContainerState, EngineVolume, Hint};

pub(super) struct SimNode {
    pub(super) containers: BTreeMap<String, SimContainer>,
    pub(super) volumes: BTreeMap<String, EngineVolume>,
    pub(super) hints: broadcast::Sender<Hint>,
}

impl Default for SimNode {
    fn default() -> Self {
        Self { containers: BTreeMap::new(), volumes: BTreeMap::new(), hints: broadcast::Sender::new(64) }
    }
}

impl SimNode {
    pub(super) fn run(&mut self, request: &ContainerRequest) -> Container {
        let identity = &request.identity;
        let name = identity.container_name();
        if let Some(found) = self.containers.get(&name) {
            return found.container.clone();
        }
        let container =
            Container::new(format!("{}/{name}", identity.node), identity, ContainerState::Running);
        let ends_with = exit_code(request);
        let exec_exit_code = Some(i64::from(request.container.image.starts_with("unhealthy")));
        let volumes = self.create_volumes(request);
        let mut simulated = SimContainer {
            container: container.clone(),
            volumes,
            ends_with,
            exec_exit_code,
            execs: 0,
            signals: Vec::new(),
            starts: 0,
        };
        simulated.start();
        self.containers.insert(name, simulated);
        self.send_hint(&container, ends_with.is_none());
        container
    }

    fn create_volumes(&mut self, request: &ContainerRequest) -> Vec<String> {
        let mut names = Vec::new();
        for volume in requested(request) {
            let get = |key: &str| volume.labels.get(key).map(String::as_str);
            if let Some(created) = EngineVolume::from_labels(&volume.handle, get) {
                self.volumes.entry(volume.handle.clone()).or_insert(created);
                names.push(volume.handle);
            }
        }
        names
    }

    pub(super) fn remove_volume(&mut self, name: &str) -> bool {
        let is_used =
            self.containers.values().any(|simulated| simulated.volumes.iter().any(|own| own == name));
        if !is_used {
            self.volumes.remove(name);
        }
        !is_used
    }

    pub(super) fn send_hint(&self, container: &Container, is_start: bool) {
        let (pod, handle) = (Some(container.pod.clone()), Some(container.handle.clone()));
        let _ = self.hints.send(Hint { pod, handle, is_start });
    }
}

fn exit_code(request: &ContainerRequest) -> Option<i64> {
    let image = request.container.image.as_str();
    let fails = || request.identity.assignment.as_str().starts_with(['0', '1', '2']);
    match image {
        image if image.starts_with("crash") => Some(1),
        image if image.starts_with("done-or-not") => Some(i64::from(fails())),
        image if image.starts_with("done") => Some(0),
        _ => None,
    }
}

#[derive(Clone)]
pub(super) struct SimContainer {
    pub(super) container: Container,
    volumes: Vec<String>,
    ends_with: Option<i64>,
    pub(super) exec_exit_code: Option<i64>,
    pub(super) execs: u32,
    pub(super) signals: Vec<StopSignal>,
    pub(super) starts: u32,
}

impl SimContainer {
    pub(super) fn start(&mut self) {
        self.starts += 1;
        let exited = |code| ContainerState::Exited { code, out_of_memory: false };
        self.container.state = self.ends_with.map_or(ContainerState::Running, exited);
    }
}
