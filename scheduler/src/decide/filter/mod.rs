//! The filters: each says whether a node may take a pod, and if not, why, in words for people.
//!
//! A filter is a value, [`Filter`], in a file of its own. Nothing here changes state, so a filter can be asked at any
//! time, and the same code that refuses also explains.

mod alive;
mod cordoned;
mod engine;
mod guest;
mod room;

use std::fmt;
use std::time::Duration;

use common::RedisMillis;
use common::node::{Node, Resources};
use serde::Serialize;

use super::PodRequest;
use super::candidate::Candidate;

/// Why a node does not take a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Reason {
    /// Declared dead, or silent for too long.
    NotReady,
    /// A person asked that nothing new be placed there.
    Cordoned,
    /// Its container engine is ill.
    EngineUnhealthy,
    /// No pod slot is free.
    TooManyPods,
    /// Not enough CPU is free.
    InsufficientCpu,
    /// Not enough memory is free.
    InsufficientMemory,
    /// Another program serves that node, and the pod asks for what it can not know.
    NeedsMoreThanGuest,
    /// There is no node at all.
    NoNodes,
}

impl Reason {
    /// The word in Redis, JSON and events.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::NotReady => "NotReady",
            Reason::Cordoned => "Cordoned",
            Reason::EngineUnhealthy => "EngineUnhealthy",
            Reason::TooManyPods => "TooManyPods",
            Reason::InsufficientCpu => "InsufficientCpu",
            Reason::InsufficientMemory => "InsufficientMemory",
            Reason::NeedsMoreThanGuest => "NeedsMoreThanGuest",
            Reason::NoNodes => "NoNodes",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a pod asks of a node. Pods with equal needs are one class: what refuses one refuses all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Need {
    pub(super) cpu_millis: u64,
    pub(super) memory_bytes: u64,
    pub(super) pods: u64,
    pub(super) only_an_image: bool,
}

impl Need {
    /// What the request says, except that every pod takes a slot, said or not.
    pub(super) fn of(pod: &PodRequest) -> Self {
        let Resources { cpu_millis, memory_bytes, pods } = pod.request;
        Self { cpu_millis, memory_bytes, pods: pods.max(1), only_an_image: pod.needs_only_an_image }
    }

    pub(super) fn resources(&self) -> Resources {
        Resources { cpu_millis: self.cpu_millis, memory_bytes: self.memory_bytes, pods: self.pods }
    }
}

/// When the question is asked, and how old a heartbeat may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) now: RedisMillis,
    pub(super) dead_after: Duration,
}

/// One reason to refuse, with its check and its explanation.
pub(super) struct Filter {
    pub(super) reason: Reason,
    pub(super) passes: fn(&Candidate, &Need, &Moment) -> bool,
    /// Why it does not pass, in a sentence with numbers. The node is there for its own words only: what is used
    /// counts from the candidate.
    pub(super) explain: fn(&Candidate, &Need, &Moment, &Node) -> String,
}

/// Those that do not look at the pod's need: who fails here takes no pod of this batch at all.
pub(super) const OF_NODE: [Filter; 3] = [alive::ALIVE, cordoned::CORDONED, engine::ENGINE];
/// Those that depend on the pod. Room only shrinks while a batch is being placed, so a refusal holds for its rest.
pub(super) const OF_POD: [Filter; 4] = [room::PODS, room::CPU, room::MEMORY, guest::GUEST];

/// Whether all of these let the pod pass.
pub(super) fn pass(filters: &[Filter], candidate: &Candidate, need: &Need, moment: &Moment) -> bool {
    filters.iter().all(|filter| (filter.passes)(candidate, need, moment))
}

/// All the filters that refuse, not just the first: who lifts a cordon wants to know what comes next.
pub(super) fn refusing<'a>(
    candidate: &'a Candidate,
    need: &'a Need,
    moment: &'a Moment,
) -> impl Iterator<Item = &'static Filter> + 'a {
    const ALL: [&[Filter]; 2] = [&OF_NODE, &OF_POD];
    ALL.into_iter().flatten().filter(|filter| !(filter.passes)(candidate, need, moment))
}

#[cfg(test)]
mod tests;
