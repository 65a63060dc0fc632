//! What is reported of a managed pod: the status of the first of its containers that is not well.

use common::pod::{ContainerProgress, ContainerStatus, PodRecord};

use super::pod::ManagedPod;

/// The reason of a pod that runs while some of its containers still wait to be started.
const STARTING: &str = "Starting";

/// What a status report says about a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PodStatus {
    /// One word in CamelCase; empty if the pod is well.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) restarts: u32,
    pub(crate) exit_code: Option<i64>,
    /// Each of several containers.
    pub(crate) containers: Vec<ContainerStatus>,
}

impl ManagedPod {
    /// Returns the status that is to be reported.
    pub(crate) fn status(&self) -> PodStatus {
        let unwell = self.containers().find(|(_, container)| !container.reason.is_empty());
        let (reason, message) = match unwell {
            Some((spec, container)) => match spec.name.as_ref().filter(|_| self.has_several()) {
                Some(name) => (container.reason, format!("{name}: {}", container.message)),
                None => (container.reason, container.message.clone()),
            },
            None => self.what_it_waits_for().map_or(("", String::new()), |message| (STARTING, message)),
        };
        let exited = self.containers.iter().find(|container| container.exit_code.is_some());
        PodStatus {
            reason,
            message,
            restarts: self.containers.iter().map(|container| container.restarts).sum(),
            exit_code: unwell.map(|(_, container)| container).or(exited).and_then(|one| one.exit_code),
            containers: self.container_statuses(),
        }
    }

    /// Returns what it waits for before it is ready, in a sentence; `None` if all its containers were started.
    pub(crate) fn what_it_waits_for(&self) -> Option<String> {
        let is_waiting = |progress| self.has_several() && progress == ContainerProgress::Waiting;
        let waiting = self.containers().filter(|(_, container)| is_waiting(container.progress));
        let sentences = waiting.filter_map(|(spec, _)| {
            let name = spec.name.as_ref()?;
            let others: Vec<&str> = spec.depends_on.iter().map(|(other, _)| other).collect();
            Some(match others.is_empty() {
                true => format!("{name} was not started yet"),
                false => format!("{name} waits for {}", others.join(", ")),
            })
        });
        let sentences: Vec<String> = sentences.collect();
        (!sentences.is_empty()).then(|| sentences.join("; "))
    }

    /// Returns the recorded status of each of its containers, with the index of the container.
    pub(crate) fn statuses_of<'a>(&self, record: &'a PodRecord) -> Vec<(usize, &'a ContainerStatus)> {
        let index =
            |name| self.spec.containers.iter().position(|container| container.name.as_ref() == Some(name));
        record.containers.iter().filter_map(|status| Some((index(&status.name)?, status))).collect()
    }

    fn container_statuses(&self) -> Vec<ContainerStatus> {
        if !self.has_several() {
            return Vec::new();
        }
        let of_one = self.containers().filter_map(|(spec, container)| {
            Some(ContainerStatus {
                name: spec.name.clone()?,
                state: container.progress,
                restarts: container.restarts,
                exit_code: container.exit_code,
                reason: container.reason.to_owned(),
                message: container.message.clone(),
            })
        });
        of_one.collect()
    }
}
