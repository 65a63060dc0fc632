//! The reported status of a managed pod: that of its first container that is not well.

use model::pod::{ContainerProgress, ContainerStatus, PodRecord};
use model::spec::ContainerSpec;

use super::container::ManagedContainer;
use super::pod::ManagedPod;
use super::reasons::STARTING;
use crate::start::dependency_gate::WAITING;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PodStatus {
    /// In CamelCase; empty if the pod is well.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) restarts: u32,
    pub(crate) exit_code: Option<i64>,
    pub(crate) containers: Vec<ContainerStatus>,
}

impl ManagedPod {
    pub(crate) fn status(&self) -> PodStatus {
        let unwell = self.containers().find_map(|(spec, container)| {
            let (reason, message) = container.problem()?;
            Some((reason, self.with_name(spec, message), container))
        });
        let exit_code = match &unwell {
            Some((_, _, container)) => container.exit_code,
            None => self.containers.iter().find_map(|container| container.exit_code),
        };
        let waits_for = self.waits_for.as_ref().filter(|message| !message.is_empty());
        let (reason, message) = match (waits_for, unwell) {
            (Some(message), _) => (WAITING, message.clone()),
            (None, Some((reason, message, _))) => (reason, message),
            (None, None) => match self.not_started() {
                Some(message) => (STARTING, message),
                None => ("", self.remark()),
            },
        };
        PodStatus {
            reason,
            message,
            restarts: self.restarts(),
            exit_code,
            containers: self.container_statuses(),
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        let is_waiting = self.waits_for.as_ref().is_some_and(|message| !message.is_empty());
        let is_well = |container: &ManagedContainer| {
            container.progress != ContainerProgress::Waiting && container.problem().is_none()
        };
        !is_waiting && self.containers().all(|(_, container)| is_well(container))
    }

    pub(crate) fn is_reported_in(&self, record: &PodRecord) -> bool {
        let status = self.status();
        let is_same_word = (&*record.reason, &record.message) == (status.reason, &status.message);
        is_same_word
            && record.restarts == status.restarts
            && (status.exit_code.is_none() || record.exit_code == status.exit_code)
            && record.containers == status.containers
            && (self.network.address.is_empty() || record.address == self.network.address)
    }

    pub(crate) fn what_it_waits_for(&self) -> Option<String> {
        let status = self.status();
        (status.reason == STARTING).then_some(status.message)
    }

    fn remark(&self) -> String {
        let mut remarks = self.containers().map(|(spec, container)| (spec, container.remark()));
        let found = remarks.find(|(_, remark)| !remark.is_empty());
        found.map_or_else(String::new, |(spec, remark)| self.with_name(spec, remark))
    }

    fn with_name(&self, spec: &ContainerSpec, message: String) -> String {
        match spec.name.as_ref().filter(|_| self.has_several()) {
            Some(name) => format!("{name}: {message}"),
            None => message,
        }
    }

    fn not_started(&self) -> Option<String> {
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
            let (reason, message) = container.problem().unwrap_or_else(|| ("", container.remark()));
            Some(ContainerStatus {
                name: spec.name.clone()?,
                state: container.progress,
                restarts: container.restarts,
                exit_code: container.exit_code,
                reason: reason.to_owned(),
                message,
            })
        });
        of_one.collect()
    }
}
