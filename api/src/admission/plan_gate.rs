//! Lets one plan run at a time: each reads the whole cluster.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::http::problem::{ApiProblem, ProblemKind};

/// Between the beginnings of two plans: each reads the whole cluster.
const PLAN_INTERVAL: Duration = Duration::from_secs(2);

/// Lets one plan run at a time.
#[derive(Default)]
pub(crate) struct PlanGate {
    begun: Option<Instant>,
    is_busy: bool,
}

pub(crate) struct RunningPlan(Arc<Mutex<PlanGate>>);

impl RunningPlan {
    /// Also returns how long to wait first.
    pub(crate) fn begin(gate: &Arc<Mutex<PlanGate>>, now: Instant) -> Result<(Self, Duration), ApiProblem> {
        let mut state = gate.lock();
        if state.is_busy {
            let detail =
                format!("a plan reads the whole cluster: try again in {} s", PLAN_INTERVAL.as_secs());
            return Err(ApiProblem::new(ProblemKind::PlanBusy, detail));
        }
        let due = state.begun.map_or(now, |begun| now.max(begun + PLAN_INTERVAL));
        *state = PlanGate { begun: Some(due), is_busy: true };
        Ok((Self(Arc::clone(gate)), due - now))
    }
}

impl Drop for RunningPlan {
    fn drop(&mut self) {
        self.0.lock().is_busy = false;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn one_plan_is_made_at_a_time_and_one_in_two_seconds() {
        let (gate, start) = (Arc::default(), Instant::now());
        let (first, wait) = RunningPlan::begin(&gate, start).unwrap();
        assert_eq!(wait, Duration::ZERO);
        let later = start + 2 * PLAN_INTERVAL;
        assert_eq!(RunningPlan::begin(&gate, later).err().unwrap().kind, ProblemKind::PlanBusy);
        drop(first);
        let wait = |now| RunningPlan::begin(&gate, now).unwrap().1;
        assert_eq!(wait(start + PLAN_INTERVAL / 2), PLAN_INTERVAL / 2);
        assert_eq!(wait(later), Duration::ZERO);
    }
}
