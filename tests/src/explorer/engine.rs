//! The engines of all hosts, as far as the protocol cares: which containers run where. They know nothing of the
//! workers, and outlive them.

use common::ids::{AssignmentId, PodId};

/// A container that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Container {
    /// Its host, by the number of the worker there.
    pub(super) host: usize,
    pub(super) pod: PodId,
    pub(super) assignment: AssignmentId,
    /// `on_disconnect: stop`: never twice.
    pub(super) never_twice: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct Engine {
    containers: Vec<Container>,
}

impl Engine {
    pub(super) fn all(&self) -> &[Container] {
        &self.containers
    }

    pub(super) fn on(&self, host: usize) -> Vec<Container> {
        self.containers.iter().filter(|container| container.host == host).cloned().collect()
    }

    pub(super) fn has(&self, host: usize, pod: &PodId, assignment: &AssignmentId) -> bool {
        self.containers.iter().any(|c| c.host == host && c.pod == *pod && c.assignment == *assignment)
    }

    /// Starting what runs is nothing: names and labels come from pod and assignment.
    pub(super) fn start(&mut self, container: Container) {
        if !self.containers.contains(&container) {
            self.containers.push(container);
        }
    }

    pub(super) fn remove(&mut self, host: usize, pod: &PodId, assignment: &AssignmentId) {
        self.containers.retain(|c| !(c.host == host && c.pod == *pod && c.assignment == *assignment));
    }

    /// Ends those on a host that must never run twice.
    pub(super) fn fence(&mut self, host: usize) {
        self.containers.retain(|c| !(c.host == host && c.never_twice));
    }

    /// Ends all on a host.
    pub(super) fn clear(&mut self, host: usize) {
        self.containers.retain(|c| c.host != host);
    }
}
