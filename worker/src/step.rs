//! Decides what to do about one managed pod: facts in, one action out. Pure: no clock, no engine, no Redis.

use std::time::Duration;

use common::backoff;
use common::clock::BootInstant;
use common::spec::RestartPolicy;

use crate::runtime::ContainerState;

/// What this node is to do with a managed pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DesiredState {
    /// Keep it running.
    Run,
    /// A stop was requested: stop it and report that to Redis.
    Stop,
    /// It is not assigned to this node any more: stop it and report nothing.
    Discard,
}

/// Everything that the decision depends on.
#[derive(Debug, Clone)]
pub(crate) struct PodFacts {
    pub(crate) desired: DesiredState,
    /// The container's state on the engine; `None` if there is no container.
    pub(crate) observed: Option<ContainerState>,
    pub(crate) policy: RestartPolicy,
    /// Whether this worker's lease is valid. Without it Redis cannot be written, and the fence decides about
    /// `stop` pods.
    pub(crate) is_leased: bool,
    /// Whether the pod goes on while Redis is unavailable (`on_disconnect: keep`).
    pub(crate) keeps_running: bool,
    /// Exits in a row before this one, without a healthy run between them.
    pub(crate) crash_streak: u32,
    /// Since when its container runs, as far as is known.
    pub(crate) running_since: Option<BootInstant>,
    /// Whether it was started again after an exit and has not counted as well since then.
    pub(crate) is_recovering: bool,
    /// When an exited container is to be started again; `None` until that is decided.
    pub(crate) restart_at: Option<BootInstant>,
    /// Nothing is to be done before this moment, because the last action failed.
    pub(crate) retry_at: Option<BootInstant>,
    pub(crate) now: BootInstant,
}

/// How long exited containers wait for their next start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RestartBackoff {
    /// The wait after the first exit; it doubles with each further one. A container that was started again and
    /// has run for this long counts as well.
    pub(crate) first: Duration,
    /// The longest wait.
    pub(crate) max: Duration,
    /// A container that ran this long counts as healthy: its next exit is a first one again.
    pub(crate) healthy_after: Duration,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing for now.
    Leave,
    /// Stop and remove the container, then finish the pod as stopped.
    Stop,
    /// There is no container: finish the pod as stopped.
    FinishStopped,
    /// Stop and remove the container, then forget the pod.
    Discard,
    /// There is no container: forget the pod.
    Forget,
    /// The container is gone: report it lost, so that the pod is started anew.
    ReportLost,
    /// The container exited: wait before its next start.
    BackOff { exit: Exit, wait: Duration, crash_streak: u32 },
    /// Start the container again.
    Restart,
    /// The container was started again and has run for a while: the pod is well.
    Recover,
    /// The container exited and is not to be started again: finish the pod.
    Finish { exit: Exit },
}

/// How a container ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) code: i64,
    pub(crate) out_of_memory: bool,
}

impl Exit {
    /// Describes the exit for people: "exited with code 1".
    pub(crate) fn describe(self) -> String {
        if self.out_of_memory {
            format!("killed because it used more memory than its limit (exit code {})", self.code)
        } else {
            format!("exited with code {}", self.code)
        }
    }

    fn is_success(self) -> bool {
        self.code == 0 && !self.out_of_memory
    }
}

/// Returns what to do about a pod now.
pub(crate) fn step(facts: &PodFacts, backoff: &RestartBackoff) -> Action {
    if facts.retry_at.is_some_and(|at| facts.now < at) {
        return Action::Leave;
    }
    match (facts.desired, facts.observed) {
        (DesiredState::Discard, Some(_)) => Action::Discard,
        (DesiredState::Discard, None) => Action::Forget,
        (DesiredState::Stop, Some(_)) => Action::Stop,
        (DesiredState::Stop, None) => Action::FinishStopped,
        (DesiredState::Run, None) if facts.is_leased => Action::ReportLost,
        // The fence may have removed it, and without a lease Redis cannot be told anyway.
        (DesiredState::Run, None) => Action::Leave,
        (DesiredState::Run, Some(ContainerState::Running)) if has_recovered(facts, backoff) => {
            Action::Recover
        }
        // A container that the engine cannot tell about is left alone until it can.
        (DesiredState::Run, Some(ContainerState::Running | ContainerState::Unknown)) => Action::Leave,
        (DesiredState::Run, Some(ContainerState::Created)) if can_start(facts) => Action::Restart,
        (DesiredState::Run, Some(ContainerState::Created)) => Action::Leave,
        (DesiredState::Run, Some(ContainerState::Exited { code, out_of_memory })) => {
            after_exit(facts, backoff, Exit { code, out_of_memory })
        }
    }
}

fn after_exit(facts: &PodFacts, backoff: &RestartBackoff, exit: Exit) -> Action {
    let restarts = match facts.policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => !exit.is_success(),
        RestartPolicy::Never => false,
    };
    match (restarts, facts.restart_at) {
        (false, _) if facts.is_leased => Action::Finish { exit },
        (false, _) => Action::Leave,
        (true, None) => {
            let ran_for = facts.running_since.map(|since| facts.now.since(since));
            let was_healthy = ran_for.is_some_and(|ran_for| ran_for >= backoff.healthy_after);
            let streak = if was_healthy { 0 } else { facts.crash_streak };
            let wait = backoff::delay(backoff.first, backoff.max, streak);
            Action::BackOff { exit, wait, crash_streak: streak.saturating_add(1) }
        }
        (true, Some(at)) if facts.now >= at && can_start(facts) => Action::Restart,
        (true, Some(_)) => Action::Leave,
    }
}

fn has_recovered(facts: &PodFacts, backoff: &RestartBackoff) -> bool {
    let ran_for = facts.running_since.map(|since| facts.now.since(since));
    facts.is_recovering && ran_for.is_some_and(|ran_for| ran_for >= backoff.first)
}

fn can_start(facts: &PodFacts) -> bool {
    facts.is_leased || facts.keeps_running
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: RestartBackoff = RestartBackoff {
        first: Duration::from_secs(10),
        max: Duration::from_secs(300),
        healthy_after: Duration::from_secs(600),
    };
    const RUNNING: Option<ContainerState> = Some(ContainerState::Running);
    const CREATED: Option<ContainerState> = Some(ContainerState::Created);

    fn exited(code: i64) -> Option<ContainerState> {
        Some(ContainerState::Exited { code, out_of_memory: false })
    }

    fn exit(code: i64) -> Exit {
        Exit { code, out_of_memory: false }
    }

    fn at(seconds: u64) -> Option<BootInstant> {
        Some(BootInstant { millis: seconds * 1000 })
    }

    /// A pod that is to run, at second 1000, with a valid lease.
    fn facts(observed: Option<ContainerState>) -> PodFacts {
        PodFacts {
            desired: DesiredState::Run,
            observed,
            policy: RestartPolicy::Always,
            is_leased: true,
            keeps_running: true,
            crash_streak: 0,
            running_since: at(990),
            is_recovering: false,
            restart_at: None,
            retry_at: None,
            now: BootInstant { millis: 1_000_000 },
        }
    }

    fn back_off(code: i64, seconds: u64, crash_streak: u32) -> Action {
        Action::BackOff { exit: exit(code), wait: Duration::from_secs(seconds), crash_streak }
    }

    #[test]
    fn desired_and_observed_state_decide_the_action() {
        let table = [
            (DesiredState::Run, None, Action::ReportLost),
            (DesiredState::Run, CREATED, Action::Restart),
            (DesiredState::Run, RUNNING, Action::Leave),
            (DesiredState::Run, exited(1), back_off(1, 10, 1)),
            (DesiredState::Stop, None, Action::FinishStopped),
            (DesiredState::Stop, CREATED, Action::Stop),
            (DesiredState::Stop, RUNNING, Action::Stop),
            (DesiredState::Stop, exited(0), Action::Stop),
            (DesiredState::Discard, None, Action::Forget),
            (DesiredState::Discard, CREATED, Action::Discard),
            (DesiredState::Discard, RUNNING, Action::Discard),
            (DesiredState::Discard, exited(0), Action::Discard),
        ];
        for (desired, observed, action) in table {
            assert_eq!(
                step(&PodFacts { desired, ..facts(observed) }, &BACKOFF),
                action,
                "{desired:?} {observed:?}"
            );
        }
    }

    #[test]
    fn the_restart_policy_decides_what_follows_an_exit() {
        let table = [
            (RestartPolicy::Always, 0, back_off(0, 10, 1)),
            (RestartPolicy::Always, 1, back_off(1, 10, 1)),
            (RestartPolicy::OnFailure, 0, Action::Finish { exit: exit(0) }),
            (RestartPolicy::OnFailure, 1, back_off(1, 10, 1)),
            (RestartPolicy::Never, 0, Action::Finish { exit: exit(0) }),
            (RestartPolicy::Never, 1, Action::Finish { exit: exit(1) }),
        ];
        for (policy, code, action) in table {
            assert_eq!(
                step(&PodFacts { policy, ..facts(exited(code)) }, &BACKOFF),
                action,
                "{policy:?} {code}"
            );
        }
        let killed = Some(ContainerState::Exited { code: 0, out_of_memory: true });
        let action = step(&PodFacts { policy: RestartPolicy::OnFailure, ..facts(killed) }, &BACKOFF);
        assert!(matches!(action, Action::BackOff { .. }), "out of memory is a failure: {action:?}");
    }

    #[test]
    fn waits_double_until_a_healthy_run() {
        let table = [
            (0, at(990), back_off(1, 10, 1)),
            (1, at(990), back_off(1, 20, 2)),
            (4, at(990), back_off(1, 160, 5)),
            (5, at(990), back_off(1, 300, 6)),
            (40, None, back_off(1, 300, 41)),
            (5, at(400), back_off(1, 10, 1)),
            (5, at(401), back_off(1, 300, 6)),
        ];
        for (streak, running_since, action) in table {
            assert_eq!(
                step(&PodFacts { crash_streak: streak, running_since, ..facts(exited(1)) }, &BACKOFF),
                action,
                "{streak}"
            );
        }
    }

    #[test]
    fn a_restarted_container_is_well_when_it_has_run_as_long_as_the_first_wait() {
        let table = [
            (RUNNING, at(990), Action::Recover),
            (RUNNING, at(991), Action::Leave),
            (RUNNING, None, Action::Leave),
            (Some(ContainerState::Unknown), at(990), Action::Leave),
        ];
        for (observed, running_since, action) in table {
            let facts = PodFacts { is_recovering: true, running_since, ..facts(observed) };
            assert_eq!(step(&facts, &BACKOFF), action, "{observed:?} {running_since:?}");
        }
    }

    #[test]
    fn an_exited_container_is_not_started_before_its_time() {
        for (restart_at, action) in
            [(at(1001), Action::Leave), (at(1000), Action::Restart), (at(3), Action::Restart)]
        {
            assert_eq!(
                step(&PodFacts { restart_at, ..facts(exited(1)) }, &BACKOFF),
                action,
                "{restart_at:?}"
            );
        }
    }

    #[test]
    fn without_a_lease_nothing_is_reported_and_only_keep_pods_start() {
        let table = [
            (None, true, None, Action::Leave),
            (None, false, None, Action::Leave),
            (CREATED, true, None, Action::Restart),
            (CREATED, false, None, Action::Leave),
            (exited(1), true, at(999), Action::Restart),
            (exited(1), false, at(999), Action::Leave),
            (RUNNING, true, None, Action::Leave),
            (RUNNING, false, None, Action::Leave),
        ];
        for (observed, keeps_running, restart_at, action) in table {
            let facts = PodFacts { is_leased: false, keeps_running, restart_at, ..facts(observed) };
            assert_eq!(step(&facts, &BACKOFF), action, "{observed:?} {keeps_running}");
        }
        let ended = PodFacts { is_leased: false, policy: RestartPolicy::Never, ..facts(exited(0)) };
        assert_eq!(step(&ended, &BACKOFF), Action::Leave);
    }

    #[test]
    fn after_a_failed_action_nothing_is_done_before_the_retry_time() {
        for desired in [DesiredState::Run, DesiredState::Stop, DesiredState::Discard] {
            for observed in [None, CREATED, RUNNING, exited(0)] {
                let facts = PodFacts { desired, retry_at: at(1001), ..facts(observed) };
                assert_eq!(step(&facts, &BACKOFF), Action::Leave, "{desired:?} {observed:?}");
            }
        }
    }
}
