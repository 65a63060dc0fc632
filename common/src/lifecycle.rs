//! The life of a pod: one table, and who may move what.
//!
//! A pod is desired from the moment its record exists. The Lua scripts carry these edges out; a test walks every
//! (phase, event) pair through the scripts and compares with [`transition`] (`tests/tests/lifecycle.rs`).
//! `docs/LIFECYCLE.md` draws it.

use serde::{Deserialize, Serialize};

/// Where a pod is in its life. Stored in `pod:<uuid>` under `phase`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waits for a node: its payload is in sq, in a scheduler's hands, or recorded as unschedulable.
    Pending,
    /// Given to a node: its payload is in that node's pq or rq.
    Assigned,
    /// Its node acknowledged it: its payload is in that node's cs. A container between two restarts counts.
    Running,
    /// Nobody wants it any more; its node has yet to say that it is gone.
    Stopping,
    /// Gone because somebody asked. A tombstone that keeps late copies of the payload from starting.
    Stopped,
    /// Ended by itself with success, and its restart policy lets it rest.
    Succeeded,
    /// Ended by itself without success, or could never be started.
    Failed,
}

/// What can happen to a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PodEvent {
    /// A scheduler gave it to a node. Owner: scheduler.
    Assign,
    /// Its node runs it. Owner: worker.
    Ack,
    /// Its node reports that the container is gone without an exit to account for: a new attempt. Owner: worker.
    Lost,
    /// Its node was declared dead: back to the queue. Owner: scheduler.
    NodeDied,
    /// It is surplus, or a person stopped it. Owner: reconcile and api.
    Stop,
    /// Its node stopped it as asked. Owner: worker.
    Stopped,
    /// It ended well by itself. Owner: worker.
    Succeeded,
    /// It ended badly by itself and is not to be restarted. Owner: worker.
    Failed,
    /// Its payload went to the dead letters. Owner: whoever held the payload.
    Reject,
    /// A person gave its dead letter another try. Owner: api.
    Requeue,
}

/// A move the table does not have. The caller holds stale knowledge: reread, do not force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a {from:?} pod cannot take {event:?}")]
pub struct IllegalTransition {
    /// The phase the pod is in.
    pub from: Phase,
    /// What was attempted.
    pub event: PodEvent,
}

/// The table. Total: every pair has an answer.
pub fn transition(from: Phase, event: PodEvent) -> Result<Phase, IllegalTransition> {
    use Phase as P;
    use PodEvent as E;
    let to = match (from, event) {
        (P::Pending, E::Assign) => P::Assigned,
        (P::Assigned, E::Ack) => P::Running,
        (P::Running, E::Lost) => P::Assigned,
        (P::Assigned | P::Running, E::NodeDied) => P::Pending,
        (P::Pending, E::Stop) => P::Stopped,
        (P::Assigned | P::Running, E::Stop) => P::Stopping,
        // However it ended: it was to end.
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
    /// All phases, in the order of a life.
    pub const ALL: [Phase; 7] = [
        Phase::Pending,
        Phase::Assigned,
        Phase::Running,
        Phase::Stopping,
        Phase::Stopped,
        Phase::Succeeded,
        Phase::Failed,
    ];

    /// The word in Redis and in JSON.
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

    /// Reads the word back.
    pub fn parse(word: &str) -> Option<Phase> {
        Phase::ALL.into_iter().find(|phase| phase.as_str() == word)
    }

    /// Whether nothing will happen to the pod by itself any more.
    pub fn is_terminal(self) -> bool {
        matches!(self, Phase::Stopped | Phase::Succeeded | Phase::Failed)
    }
}

impl PodEvent {
    /// All events.
    pub const ALL: [PodEvent; 10] = [
        PodEvent::Assign,
        PodEvent::Ack,
        PodEvent::Lost,
        PodEvent::NodeDied,
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
    fn stopped_is_the_end_and_every_phase_reaches_it() {
        for event in PodEvent::ALL {
            assert!(transition(Phase::Stopped, event).is_err(), "{event:?}");
        }
        for phase in Phase::ALL.into_iter().filter(|phase| *phase != Phase::Stopped) {
            assert!(reaches_the_end(phase, &mut vec![]), "{phase} has no way to the end");
        }
    }

    fn reaches_the_end(phase: Phase, seen: &mut Vec<Phase>) -> bool {
        if phase == Phase::Stopped || seen.contains(&phase) {
            return phase == Phase::Stopped;
        }
        seen.push(phase);
        PodEvent::ALL
            .into_iter()
            .any(|event| transition(phase, event).is_ok_and(|to| reaches_the_end(to, seen)))
    }

    #[test]
    fn words_round_trip() {
        for phase in Phase::ALL {
            assert_eq!(Phase::parse(phase.as_str()), Some(phase));
        }
        assert_eq!(Phase::parse("Running"), None);
    }
}
