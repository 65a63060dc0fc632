//! Lets one plan run at a time, for half of the time: each reads the whole cluster.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::http::problem::{ApiProblem, ProblemKind};

/// A plan is followed by a rest as long as it took: a large cluster's costs Redis more.
const LONGEST_REST: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(crate) struct PlanGate {
    is_busy: bool,
    /// The end of the rest after the last plan.
    rested_at: Option<Instant>,
}

pub(crate) struct RunningPlan {
    gate: Arc<Mutex<PlanGate>>,
    begins_at: Instant,
}

impl RunningPlan {
    /// Also returns how long to wait first.
    pub(crate) fn begin(gate: &Arc<Mutex<PlanGate>>, now: Instant) -> Result<(Self, Duration), ApiProblem> {
        let mut state = gate.lock();
        if state.is_busy {
            let detail = format!("a plan reads the whole cluster: try again in {} s", LONGEST_REST.as_secs());
            return Err(ApiProblem::new(ProblemKind::PlanBusy, detail));
        }
        state.is_busy = true;
        let begins_at = state.rested_at.map_or(now, |rested_at| now.max(rested_at));
        Ok((Self { gate: Arc::clone(gate), begins_at }, begins_at - now))
    }

    fn end(&self, now: Instant) {
        let took = now.saturating_duration_since(self.begins_at);
        let rest = took.min(LONGEST_REST);
        *self.gate.lock() = PlanGate { is_busy: false, rested_at: Some(now + rest) };
    }
}

/// Also if the client goes away meanwhile.
impl Drop for RunningPlan {
    fn drop(&mut self) {
        self.end(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn one_plan_is_made_at_a_time_and_a_long_one_is_followed_by_a_long_rest() {
        let start = Instant::now();
        let gate: Arc<Mutex<PlanGate>> = Arc::default();
        let (first, wait) = RunningPlan::begin(&gate, start).unwrap();
        assert_eq!(wait, Duration::ZERO);
        let hour = Duration::from_secs(3600);
        assert_eq!(RunningPlan::begin(&gate, start + hour).err().unwrap().kind, ProblemKind::PlanBusy);
        let second = Duration::from_secs(1);
        for (took, rest) in [(second / 100, second / 100), (second * 30, LONGEST_REST)] {
            first.end(start + took);
            let (next, wait) = RunningPlan::begin(&gate, start + took).unwrap();
            assert_eq!(wait, rest);
            std::mem::forget(next);
            first.end(start + took);
            assert_eq!(RunningPlan::begin(&gate, start + took + rest).unwrap().1, Duration::ZERO);
        }
    }
}
