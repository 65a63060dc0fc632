//! The phases of a pod: one table of transitions, and the owner of each.
//!
//! The Lua scripts carry them out; `tests/tests/scripts/lifecycle.rs` and `tests/tests/scripts/phases.rs`
//! compare both. `docs/concepts/lifecycle.md` draws it.

use serde::{Deserialize, Serialize};

/// The phase of a pod. Stored in `pod:<uuid>` under `phase`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waits for a node: its payload is in sq, in flight in a scheduler, or recorded as unschedulable.
    Pending,
    /// Assigned to a node: its payload is in that node's pq or rq.
    Assigned,
    /// Its node acknowledged it: its payload is in that node's cs. A container between two restarts counts.
    Running,
    /// No longer wanted; its node has not yet reported that it is gone.
    Stopping,
    /// Ended because it was no longer wanted. A tombstone that keeps late copies of the payload from
    /// starting.
    Stopped,
    /// Ended by itself with success, and its restart policy does not restart it.
    Succeeded,
    /// Ended by itself without success, or could never be started.
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PodEvent {
    /// Owner: scheduler.
    Assign,
    /// Owner: worker.
    Ack,
    /// The container is gone without an exit code: a new attempt. Owner: worker.
    Lost,
    /// Back to the queue. Owner: scheduler.
    NodeDied,
    /// Another program uses a port that it needs. Owner: worker.
    GiveBack,
    /// It is surplus, or a user stopped it. Owner: reconcile loop and api.
    Stop,
    /// Owner: worker.
    Stopped,
    /// Ended by itself. Owner: worker.
    Succeeded,
    /// Ended by itself and is not restarted. Owner: worker.
    Failed,
    /// Owner: the process that held the payload.
    Reject,
    /// Owner: api.
    Requeue,
}

/// The caller's data is outdated: read again, do not force it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a {from:?} pod cannot take {event:?}")]
pub struct IllegalTransition {
    pub from: Phase,
    pub event: PodEvent,
}

pub fn transition(from: Phase, event: PodEvent) -> Result<Phase, IllegalTransition> {
    use Phase as P;
    use PodEvent as E;
    let to = match (from, event) {
        (P::Pending, E::Assign) => P::Assigned,
        (P::Assigned, E::Ack) => P::Running,
        (P::Running, E::Lost) => P::Assigned,
        (P::Assigned | P::Running, E::NodeDied) => P::Pending,
        (P::Assigned, E::GiveBack) => P::Pending,
        (P::Pending, E::Stop) => P::Stopped,
        (P::Assigned | P::Running, E::Stop) => P::Stopping,
        (P::Stopping, E::Stopped | E::NodeDied | E::Succeeded | E::Failed) => P::Stopped,
        (P::Succeeded | P::Failed, E::Stop) => P::Stopped,
        (P::Running, E::Succeeded) => P::Succeeded,
        (P::Running, E::Failed) => P::Failed,
        (P::Pending | P::Assigned, E::Reject) => P::Failed,
        (P::Failed, E::Requeue) => P::Pending,
        _ => return Err(IllegalTransition { from, event }),
    };
    Ok(to)
}

impl Phase {
    pub const ALL: [Phase; 7] = [
        Phase::Pending,
        Phase::Assigned,
        Phase::Running,
        Phase::Stopping,
        Phase::Stopped,
        Phase::Succeeded,
        Phase::Failed,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Pending => "pending",
            Phase::Assigned => "assigned",
            Phase::Running => "running",
            Phase::Stopping => "stopping",
            Phase::Stopped => "stopped",
            Phase::Succeeded => "succeeded",
            Phase::Failed => "failed",
        }
    }

    pub fn parse(word: &str) -> Option<Phase> {
        Phase::ALL.into_iter().find(|phase| phase.as_str() == word)
    }

    /// Only a user or a change of the service ends it.
    pub fn is_terminal(self) -> bool {
        matches!(self, Phase::Stopped | Phase::Succeeded | Phase::Failed)
    }
}

impl PodEvent {
    pub const ALL: [PodEvent; 11] = [
        PodEvent::Assign,
        PodEvent::Ack,
        PodEvent::Lost,
        PodEvent::NodeDied,
        PodEvent::GiveBack,
        PodEvent::Stop,
        PodEvent::Stopped,
        PodEvent::Succeeded,
        PodEvent::Failed,
        PodEvent::Reject,
        PodEvent::Requeue,
    ];
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopped_is_final_and_every_phase_can_reach_it() {
        for event in PodEvent::ALL {
            assert!(transition(Phase::Stopped, event).is_err(), "{event:?}");
        }
        for phase in Phase::ALL.into_iter().filter(|phase| *phase != Phase::Stopped) {
            assert!(can_be_stopped(phase, &mut vec![]), "{phase} cannot reach stopped");
        }
    }

    fn can_be_stopped(phase: Phase, seen: &mut Vec<Phase>) -> bool {
        if phase == Phase::Stopped || seen.contains(&phase) {
            return phase == Phase::Stopped;
        }
        seen.push(phase);
        PodEvent::ALL
            .into_iter()
            .any(|event| transition(phase, event).is_ok_and(|to| can_be_stopped(to, seen)))
    }

    #[test]
    fn phases_round_trip_as_words() {
        for phase in Phase::ALL {
            assert_eq!(Phase::parse(phase.as_str()), Some(phase));
        }
        assert_eq!(Phase::parse("Running"), None);
    }
}
