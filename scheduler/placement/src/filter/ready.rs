//! Nodes without a recent heartbeat may be about to be declared dead.

use std::time::Duration;

use model::node::NodeState;

use super::types::{EvalContext, NodeFilter, Reason};
use crate::amounts::seconds;
use crate::candidate::Candidate;

pub(super) const READY: NodeFilter = NodeFilter {
    reason: Reason("NotReady"),
    is_feasible: |candidate, _, context| {
        candidate.state == NodeState::Alive && silence(candidate, context) <= context.dead_after
    },
    explain: |candidate, _, context, _| match candidate.state {
        NodeState::Dead => "declared dead; its worker must register again".to_owned(),
        NodeState::Alive if candidate.beat == 0 => "has not sent a heartbeat yet".to_owned(),
        NodeState::Alive => format!(
            "last heartbeat {} ago, at most {} allowed",
            seconds(silence(candidate, context)),
            seconds(context.dead_after)
        ),
    },
};

/// A heartbeat ahead of Redis' clock, after a failover, is no silence.
fn silence(candidate: &Candidate, context: &EvalContext) -> Duration {
    Duration::from_millis(context.now.saturating_sub(candidate.beat))
}
