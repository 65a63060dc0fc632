//! Only a node that is counted on and was heard lately gets pods: others would take them along into silence.

use std::time::Duration;

use common::node::NodeState;

use super::{Filter, Moment, Reason};
use crate::decide::amounts::seconds;
use crate::decide::candidate::Candidate;

pub(super) const ALIVE: Filter = Filter {
    reason: Reason::NotReady,
    passes: |candidate, _, moment| {
        candidate.state == NodeState::Alive && silence(candidate, moment) <= moment.dead_after
    },
    explain: |candidate, _, moment, _| match candidate.state {
        NodeState::Dead => "declared dead; it comes back by registering again".to_owned(),
        NodeState::Alive if candidate.beat == 0 => "has not sent a heartbeat yet".to_owned(),
        NodeState::Alive => format!(
            "last heartbeat {} ago, at most {} allowed",
            seconds(silence(candidate, moment)),
            seconds(moment.dead_after)
        ),
    },
};

/// How long nothing was heard. After a failover Redis' clock can be behind a beat: that is no silence.
fn silence(candidate: &Candidate, moment: &Moment) -> Duration {
    Duration::from_millis(moment.now.saturating_sub(candidate.beat))
}
