//! Decides the supervisor's next step from the state of the lease and the worker. Pure.

use std::time::Duration;

use model::node::timing::Timing;

use crate::fencing::liveness;

/// A process started after the expiry is about to fence, and the supervisor has just done so.
const FIRST_SIGN_GRACE: Duration = Duration::from_secs(3);
/// A process without a sign of life until then is killed.
const FIRST_SIGN_TIMEOUT: Duration = Duration::from_secs(10);
/// A worker promises ten seconds.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(12);
/// Containers requested by a dead worker may still appear.
const FENCE_INTERVAL: Duration = Duration::from_secs(1);
const LONG_EXPIRED_FENCE_INTERVAL: Duration = Duration::from_secs(5);
const LONG_EXPIRED: Duration = Duration::from_secs(60);
/// The clock of sleeps stops while the machine is suspended.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerState {
    NotStarted,
    Running { age: Duration, silent_for: Option<Duration>, started_after_expiry: bool },
    Exited { restart_in: Duration },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SupervisorFacts {
    /// `None` if it has expired, or there is none.
    pub(super) lease_remaining: Option<Duration>,
    pub(super) expired_for: Duration,
    /// Since a scan found no container to stop.
    pub(super) clean_for: Option<Duration>,
    pub(super) is_fencing: bool,
    pub(super) worker: WorkerState,
    pub(super) ending_for: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SupervisorStep {
    pub(super) kill: bool,
    pub(super) fence: bool,
    pub(super) start: bool,
    pub(super) end: bool,
}

/// A worker silent for longer is taken not to enforce the fence.
pub(super) fn max_silence(timing: &Timing) -> Duration {
    liveness::period(timing) * 3
}

/// Short enough that another process can still renew the lease.
fn hangs_after(timing: &Timing) -> Duration {
    (timing.fence_after / 2).max(max_silence(timing))
}

pub(super) fn wait(timing: &Timing, facts: &SupervisorFacts) -> Duration {
    let until_expiry = facts.lease_remaining.unwrap_or(POLL_INTERVAL);
    liveness::period(timing).min(POLL_INTERVAL).min(until_expiry.max(Duration::from_millis(1)))
}

pub(super) fn step(timing: &Timing, facts: &SupervisorFacts) -> SupervisorStep {
    let is_expired = facts.lease_remaining.is_none();
    let mut step = SupervisorStep::default();
    let mut is_unfenced = false;
    match facts.worker {
        WorkerState::NotStarted => step.start = facts.ending_for.is_none(),
        WorkerState::Running { age, silent_for: None, started_after_expiry } => {
            is_unfenced = !started_after_expiry || age > FIRST_SIGN_GRACE;
            step.kill = age > FIRST_SIGN_TIMEOUT;
        }
        WorkerState::Running { silent_for: Some(silent_for), .. } => {
            is_unfenced = silent_for > max_silence(timing);
            step.kill = (is_expired && is_unfenced) || silent_for > hangs_after(timing);
        }
        WorkerState::Exited { restart_in } => {
            is_unfenced = true;
            step.end = facts.ending_for.is_some();
            // Without a lease the fence comes first.
            let can_start = !is_expired || facts.clean_for.is_some();
            step.start = !step.end && restart_in.is_zero() && can_start;
        }
    }
    let is_long_expired = facts.expired_for > LONG_EXPIRED;
    let interval = if is_long_expired { LONG_EXPIRED_FENCE_INTERVAL } else { FENCE_INTERVAL };
    let is_fence_due = facts.clean_for.is_none_or(|clean_for| clean_for >= interval);
    step.fence = is_expired && is_unfenced && !step.end && !facts.is_fencing && is_fence_due;
    step.kill |= facts.ending_for.is_some_and(|ending_for| ending_for > TERMINATION_TIMEOUT);
    step
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn running(age: u64, silent_ms: Option<u64>, started_after_expiry: bool) -> WorkerState {
        let silent_for = silent_ms.map(Duration::from_millis);
        WorkerState::Running { age: S(age), silent_for, started_after_expiry }
    }

    fn exited(restart_in: u64) -> WorkerState {
        WorkerState::Exited { restart_in: S(restart_in) }
    }

    fn facts(lease_remaining: Option<u64>, worker: WorkerState) -> SupervisorFacts {
        SupervisorFacts {
            lease_remaining: lease_remaining.map(S),
            expired_for: S(0),
            clean_for: None,
            is_fencing: false,
            worker,
            ending_for: None,
        }
    }

    fn describe(facts: &SupervisorFacts) -> String {
        let step = step(&Timing::default(), facts);
        let parts = [(step.kill, "kill"), (step.fence, "fence"), (step.start, "start"), (step.end, "end")];
        parts.iter().filter(|(is_set, _)| *is_set).map(|(_, part)| *part).collect::<Vec<_>>().join(" ")
    }

    /// Defaults: fence after 15 s, a sign of life each 625 ms, silent after 1.875 s, hanging after 7.5 s.
    #[test]
    fn what_is_done_about_a_worker() {
        let table = [
            ("the first is started at once", facts(None, WorkerState::NotStarted), "start"),
            ("a healthy one is left alone", facts(Some(9), running(60, Some(600), false)), ""),
            ("also without a lease: it fences itself", facts(None, running(60, Some(600), false)), ""),
            ("silent with a lease: wait", facts(Some(9), running(60, Some(7_000), false)), ""),
            ("silent for long: it hangs", facts(Some(4), running(60, Some(8_000), false)), "kill"),
            ("silent without a lease", facts(None, running(60, Some(2_000), false)), "kill fence"),
            ("new, and the supervisor has fenced before", facts(None, running(1, None, true)), ""),
            ("new and silent for too long", facts(None, running(4, None, true)), "fence"),
            ("new, and the lease expired meanwhile", facts(None, running(1, None, false)), "fence"),
            ("never gives a sign of life", facts(Some(4), running(11, None, false)), "kill"),
            ("exited with a lease: again", facts(Some(9), exited(0)), "start"),
            ("… but not at once", facts(Some(9), exited(2)), ""),
            ("exited without a lease: first the fence", facts(None, exited(0)), "fence"),
        ];
        for (name, facts, expected) in table {
            assert_eq!(describe(&facts), expected, "{name}");
        }
    }

    #[test]
    fn it_fences_until_nothing_is_found_and_then_repeats_at_intervals() {
        let exited_without_lease = facts(None, exited(1));
        let clean_for = |millis: u64| SupervisorFacts {
            clean_for: Some(Duration::from_millis(millis)),
            ..exited_without_lease
        };
        assert_eq!(describe(&SupervisorFacts { is_fencing: true, ..exited_without_lease }), "");
        assert_eq!(describe(&clean_for(900)), "");
        assert_eq!(describe(&clean_for(1_000)), "fence");
        assert_eq!(describe(&SupervisorFacts { expired_for: S(61), ..clean_for(1_000) }), "");
        assert_eq!(describe(&SupervisorFacts { expired_for: S(61), ..clean_for(5_000) }), "fence");
        assert_eq!(describe(&SupervisorFacts { worker: exited(0), ..clean_for(10) }), "start");
    }

    #[test]
    fn asked_to_end_it_starts_nothing_and_waits_for_the_worker() {
        let ending =
            |worker, seconds| SupervisorFacts { ending_for: Some(S(seconds)), ..facts(Some(9), worker) };
        assert_eq!(describe(&ending(running(60, Some(600), false), 5)), "");
        assert_eq!(describe(&ending(running(60, Some(600), false), 13)), "kill");
        assert_eq!(describe(&ending(exited(0), 1)), "end");
        assert_eq!(describe(&ending(WorkerState::NotStarted, 0)), "");
    }

    #[test]
    fn it_waits_no_longer_than_the_lease_is_valid() {
        let timing = Timing::default();
        let healthy = |lease| facts(lease, running(60, Some(0), false));
        assert_eq!(wait(&timing, &healthy(Some(9))), Duration::from_millis(625));
        let nearly = SupervisorFacts { lease_remaining: Some(Duration::from_millis(40)), ..healthy(None) };
        assert_eq!(wait(&timing, &nearly), Duration::from_millis(40));
        assert_eq!(wait(&timing, &healthy(None)), Duration::from_millis(625));
    }
}
