//! One node of the simulated engine, and its containers.

use std::collections::BTreeMap;

use common::ids::PodId;
use tokio::sync::broadcast;

use crate::runtime::{Container, ContainerRequest, ContainerState, Hint};

pub(super) struct SimNode {
    /// By container name.
    pub(super) containers: BTreeMap<String, SimContainer>,
    pub(super) hints: broadcast::Sender<Hint>,
}

impl Default for SimNode {
    fn default() -> Self {
        Self { containers: BTreeMap::new(), hints: broadcast::Sender::new(64) }
    }
}

impl SimNode {
    /// Runs a container, or returns the one that was created for the same identity before.
    pub(super) fn run(&mut self, request: &ContainerRequest) -> Container {
        let identity = &request.identity;
        let name = identity.container_name();
        if let Some(found) = self.containers.get(&name) {
            return found.container.clone();
        }
        let container =
            Container::new(format!("{}/{name}", identity.node), identity, ContainerState::Running);
        let crashes = request.container.image.starts_with("crash");
        let exec_exit_code = Some(i64::from(request.container.image.starts_with("unhealthy")));
        let mut simulated =
            SimContainer { container: container.clone(), crashes, exec_exit_code, execs: 0, starts: 0 };
        simulated.start();
        self.containers.insert(name, simulated);
        self.send_hint(&identity.pod, !crashes);
        container
    }

    pub(super) fn send_hint(&self, pod: &PodId, is_start: bool) {
        // Without a receiver the next list finds the change.
        let _ = self.hints.send(Hint { pod: Some(pod.clone()), handle: None, is_start });
    }
}

#[derive(Clone)]
pub(super) struct SimContainer {
    pub(super) container: Container,
    /// It exits right after each start.
    crashes: bool,
    /// How commands in it end; `None` if they do not.
    pub(super) exec_exit_code: Option<i64>,
    /// How many commands were run in it.
    pub(super) execs: u32,
    pub(super) starts: u32,
}

impl SimContainer {
    pub(super) fn start(&mut self) {
        self.starts += 1;
        let crashed = ContainerState::Exited { code: 1, out_of_memory: false };
        self.container.state = if self.crashes { crashed } else { ContainerState::Running };
    }
}
