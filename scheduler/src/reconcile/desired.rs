//! The replicas that a service wants: the first ones, or those of the nodes of a global service. Pure.

use model::service::members::Members;
use model::service::{Service, ServiceState};

use super::slots::ReplicaSlot;

#[derive(Debug, Clone, Copy)]
pub(crate) enum DesiredSlots<'a> {
    First(u32),
    Members(&'a Members),
}

impl<'a> DesiredSlots<'a> {
    pub(crate) fn of(service: &'a Service) -> Self {
        match service.state {
            ServiceState::Deleting => Self::First(0),
            ServiceState::Active if service.is_global() => Self::Members(&service.members),
            ServiceState::Active => Self::First(service.replicas),
        }
    }

    pub(super) fn count(self) -> usize {
        match self {
            Self::First(count) => count as usize,
            Self::Members(members) => members.wanted().count(),
        }
    }

    pub(super) fn replicas(self) -> Vec<u32> {
        match self {
            Self::First(count) => (0..count).collect(),
            Self::Members(members) => members.wanted().map(|(number, _)| number).collect(),
        }
    }

    pub(super) fn has_replica(self, replica: u32) -> bool {
        match self {
            Self::First(count) => replica < count,
            Self::Members(members) => members.wanted_on(replica).is_some(),
        }
    }

    /// A pod of a global service on another node than that of its number is not wanted.
    pub(super) fn has(self, slot: &ReplicaSlot) -> bool {
        match self {
            Self::First(count) => slot.slot.replica < count,
            Self::Members(members) => members.wanted_on(slot.slot.replica).is_some_and(|wanted| {
                let node = slot.pod().and_then(|pod| pod.node.as_ref());
                node.is_none_or(|node| node == wanted)
            }),
        }
    }
}
