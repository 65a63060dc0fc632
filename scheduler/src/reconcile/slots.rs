//! The slots of a service; [`super::plan`] defines the terms.

use model::ids::{NodeName, PodId};
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::pod::slot::Slot;
use model::service::Service;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SlotHolder {
    Pod(Box<PodRecord>),
    NoRecord,
    /// A node may run it: the slot stays taken.
    Lost,
    /// Its record names another slot. Taken until a full pass has checked.
    Void,
    /// Nothing is done until an operator repairs the record.
    Unreadable,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReplicaSlot {
    pub(crate) slot: Slot,
    pub(crate) id: PodId,
    pub(crate) holder: SlotHolder,
}

impl ReplicaSlot {
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
    /// Its global service wants no pod there.
    NodeLeft,
    Replaced,
    /// To another node.
    Moved,
    /// The replica's other pod is as good.
    Surplus,
    JobEnded,
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

/// A newer generation is not old, nor is this one with another specification, which was edited by hand. A pod
/// of a deleted service of this name may have any generation.
pub(super) fn is_old(service: &Service, pod: &PodRecord) -> bool {
    let is_earlier = pod.generation < service.generation || pod.created_at < service.created_at;
    is_earlier && pod.spec.as_ref() != Some(&service.spec_id)
}

pub(super) fn is_ending(pod: &PodRecord) -> bool {
    matches!(pod.phase, Phase::Stopping | Phase::Stopped)
}

pub(super) fn is_in_service(pod: &PodRecord) -> bool {
    pod.is_ready() || pod.phase == Phase::Succeeded
}
