//! The slots of a service with their pods, and queries of all planners. Pure. [`super::plan`] defines the
//! terms.

use model::ids::{NodeName, PodId};
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::pod::slot::Slot;
use model::service::Service;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SlotHolder {
    Pod(Box<PodRecord>),
    NoRecord,
    /// A pod without a record that a node may still run: the slot stays taken.
    Lost,
    /// A pod whose record names another slot, which was copied here. The slot stays taken until a full pass
    /// has checked which pod belongs there.
    Void,
    /// A pod with an unreadable record. Nothing is done until an operator repairs it.
    Unreadable,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReplicaSlot {
    pub(crate) slot: Slot,
    pub(crate) id: PodId,
    pub(crate) holder: SlotHolder,
}

impl ReplicaSlot {
    /// Returns the pod in it, if its record is readable.
    pub(crate) fn pod(&self) -> Option<&PodRecord> {
        match &self.holder {
            SlotHolder::Pod(pod) => Some(pod),
            SlotHolder::NoRecord | SlotHolder::Lost | SlotHolder::Void | SlotHolder::Unreadable => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopReason {
    ServiceDeleted,
    ScaledDown,
    Replaced,
    /// Its replica has another pod that is as good.
    Surplus,
    JobEnded,
    /// It has failed, and its index is retried.
    Retried,
    AlreadyStopping,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PodStop {
    pub(crate) replica: u32,
    pub(crate) id: PodId,
    pub(crate) node: Option<NodeName>,
    pub(crate) reason: StopReason,
}

impl PodStop {
    pub(crate) fn new(slot: &ReplicaSlot, pod: &PodRecord, reason: StopReason) -> Self {
        Self { replica: slot.slot.replica, id: slot.id.clone(), node: pod.node.clone(), reason }
    }
}

pub(super) fn pods(slots: &[ReplicaSlot]) -> impl DoubleEndedIterator<Item = (&ReplicaSlot, &PodRecord)> {
    slots.iter().filter_map(|slot| Some((slot, slot.pod()?)))
}

/// A pod of a newer generation than the service that was read is not old. Nor is one of the same generation
/// with another specification: one of the two names was edited by hand.
pub(super) fn is_old(service: &Service, pod: &PodRecord) -> bool {
    pod.generation < service.generation && pod.spec.as_ref() != Some(&service.spec_id)
}

pub(super) fn is_ending(pod: &PodRecord) -> bool {
    matches!(pod.phase, Phase::Stopping | Phase::Stopped)
}

pub(super) fn is_in_service(pod: &PodRecord) -> bool {
    pod.is_ready() || pod.phase == Phase::Succeeded
}
