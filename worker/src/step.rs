//! What to do about one pod: facts in, one action out. Pure: no clock, no engine, no Redis.
//!
//! Words. A pod is *held* when it is in this worker's table: it was acknowledged, or found in `cs` after a restart.
//! A *streak* is a run of exits with no spell of health between them; it decides the wait before the next start.

use std::time::Duration;

use common::clock::BootInstant;
use common::spec::RestartPolicy;

use crate::backoff;
use crate::runtime::ContainerState;

/// What this node shall do with a pod it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Keep it running.
    Run,
    /// Somebody wants it stopped: stop it and say so.
    Stop,
    /// It is not this node's any more: stop it and tell nobody.
    Drop,
}

/// All that the decision depends on.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) wish: Wish,
    /// What the engine says its container does; none when there is no container.
    pub(crate) seen: Option<ContainerState>,
    pub(crate) policy: RestartPolicy,
    /// Whether this worker's lease is good: without it nothing can be told to Redis, and the fence owns `stop` pods.
    pub(crate) leased: bool,
    /// Whether the pod lives on when Redis is away.
    pub(crate) keeps: bool,
    /// Exits in a row before this one.
    pub(crate) streak: u32,
    /// Since when its container runs, as far as is known.
    pub(crate) up_since: Option<BootInstant>,
    /// When an exited container is to be started again; none while that is undecided.
    pub(crate) restart_at: Option<BootInstant>,
    /// Nothing is to be done before: the engine failed a moment ago.
    pub(crate) retry_at: Option<BootInstant>,
    pub(crate) now: BootInstant,
}

/// How long exited containers wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// The wait after the first exit.
    pub(crate) first: Duration,
    /// The longest wait.
    pub(crate) most: Duration,
    /// A container that ran for so long was well: its next exit is a first one.
    pub(crate) healthy_after: Duration,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing, for now.
    Leave,
    /// Stop the container, remove it, and finish the pod as stopped.
    Stop,
    /// There is nothing to stop: finish the pod as stopped.
    FinishStopped,
    /// Stop the container, remove it, and forget the pod.
    Drop,
    /// There is nothing to stop: forget the pod.
    Forget,
    /// Its container is gone: say that it was lost.
    Lost,
    /// It ended: wait until then before it is started again.
    BackOff { exit: Exit, wait: Duration, streak: u32 },
    /// Start its container again.
    Restart,
    /// It ended, and is to rest.
    End { exit: Exit },
}

/// How a container ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) code: i64,
    pub(crate) out_of_memory: bool,
}

impl Exit {
    /// For people: "exited with 1".
    pub(crate) fn words(self) -> String {
        if self.out_of_memory {
            format!("was killed for using more memory than its limit (exit code {})", self.code)
        } else {
            format!("exited with {}", self.code)
        }
    }

    fn is_success(self) -> bool {
        self.code == 0 && !self.out_of_memory
    }
}

/// Decides.
pub(crate) fn step(facts: &Facts, patience: &Patience) -> Action {
    if facts.retry_at.is_some_and(|at| facts.now < at) {
        return Action::Leave;
    }
    match (facts.wish, facts.seen) {
        (Wish::Drop, Some(_)) => Action::Drop,
        (Wish::Drop, None) => Action::Forget,
        (Wish::Stop, Some(_)) => Action::Stop,
        (Wish::Stop, None) => Action::FinishStopped,
        // Without a lease it may have been the fence that took it away; Redis can not be told anyway.
        (Wish::Run, None) if facts.leased => Action::Lost,
        (Wish::Run, None) => Action::Leave,
        (Wish::Run, Some(ContainerState::Running)) => Action::Leave,
        (Wish::Run, Some(ContainerState::Created)) if may_start(facts) => Action::Restart,
        (Wish::Run, Some(ContainerState::Created)) => Action::Leave,
        (Wish::Run, Some(ContainerState::Exited { code, out_of_memory })) => {
            ended(facts, patience, Exit { code, out_of_memory })
        }
    }
}

fn ended(facts: &Facts, patience: &Patience, exit: Exit) -> Action {
    let again = match facts.policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => !exit.is_success(),
        RestartPolicy::Never => false,
    };
    match (again, facts.restart_at) {
        (false, _) if facts.leased => Action::End { exit },
        (false, _) => Action::Leave,
        (true, None) => {
            let well = facts.up_since.is_some_and(|up| facts.now.since(up) >= patience.healthy_after);
            let streak = if well { 0 } else { facts.streak };
            let wait = backoff::delay(patience.first, patience.most, streak);
            Action::BackOff { exit, wait, streak: streak.saturating_add(1) }
        }
        (true, Some(at)) if facts.now >= at && may_start(facts) => Action::Restart,
        (true, Some(_)) => Action::Leave,
    }
}

fn may_start(facts: &Facts) -> bool {
    facts.leased || facts.keeps
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience {
        first: Duration::from_secs(10),
        most: Duration::from_secs(300),
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

    /// A pod that is wanted, at second 1000, with a good lease.
    fn facts(seen: Option<ContainerState>) -> Facts {
        Facts {
            wish: Wish::Run,
            seen,
            policy: RestartPolicy::Always,
            leased: true,
            keeps: true,
            streak: 0,
            up_since: at(990),
            restart_at: None,
            retry_at: None,
            now: BootInstant { millis: 1_000_000 },
        }
    }

    fn back_off(code: i64, seconds: u64, streak: u32) -> Action {
        Action::BackOff { exit: exit(code), wait: Duration::from_secs(seconds), streak }
    }

    #[test]
    fn what_is_wanted_and_what_is_there() {
        let table = [
            (Wish::Run, None, Action::Lost),
            (Wish::Run, CREATED, Action::Restart),
            (Wish::Run, RUNNING, Action::Leave),
            (Wish::Run, exited(1), back_off(1, 10, 1)),
            (Wish::Stop, None, Action::FinishStopped),
            (Wish::Stop, CREATED, Action::Stop),
            (Wish::Stop, RUNNING, Action::Stop),
            (Wish::Stop, exited(0), Action::Stop),
            (Wish::Drop, None, Action::Forget),
            (Wish::Drop, CREATED, Action::Drop),
            (Wish::Drop, RUNNING, Action::Drop),
            (Wish::Drop, exited(0), Action::Drop),
        ];
        for (wish, seen, action) in table {
            assert_eq!(step(&Facts { wish, ..facts(seen) }, &PATIENCE), action, "{wish:?} {seen:?}");
        }
    }

    #[test]
    fn restart_policies() {
        let table = [
            (RestartPolicy::Always, 0, back_off(0, 10, 1)),
            (RestartPolicy::Always, 1, back_off(1, 10, 1)),
            (RestartPolicy::OnFailure, 0, Action::End { exit: exit(0) }),
            (RestartPolicy::OnFailure, 1, back_off(1, 10, 1)),
            (RestartPolicy::Never, 0, Action::End { exit: exit(0) }),
            (RestartPolicy::Never, 1, Action::End { exit: exit(1) }),
        ];
        for (policy, code, action) in table {
            assert_eq!(
                step(&Facts { policy, ..facts(exited(code)) }, &PATIENCE),
                action,
                "{policy:?} {code}"
            );
        }
        let killed = Some(ContainerState::Exited { code: 0, out_of_memory: true });
        let action = step(&Facts { policy: RestartPolicy::OnFailure, ..facts(killed) }, &PATIENCE);
        assert!(matches!(action, Action::BackOff { .. }), "out of memory is no success: {action:?}");
    }

    #[test]
    fn waits_double_until_a_spell_of_health() {
        let table = [
            (0, at(990), back_off(1, 10, 1)),
            (1, at(990), back_off(1, 20, 2)),
            (4, at(990), back_off(1, 160, 5)),
            (5, at(990), back_off(1, 300, 6)),
            (40, None, back_off(1, 300, 41)),
            (5, at(400), back_off(1, 10, 1)),
            (5, at(401), back_off(1, 300, 6)),
        ];
        for (streak, up_since, action) in table {
            assert_eq!(step(&Facts { streak, up_since, ..facts(exited(1)) }, &PATIENCE), action, "{streak}");
        }
    }

    #[test]
    fn an_exited_container_waits_for_its_time() {
        for (restart_at, action) in
            [(at(1001), Action::Leave), (at(1000), Action::Restart), (at(3), Action::Restart)]
        {
            assert_eq!(step(&Facts { restart_at, ..facts(exited(1)) }, &PATIENCE), action, "{restart_at:?}");
        }
    }

    #[test]
    fn without_a_lease_nothing_is_told_and_only_keep_pods_start() {
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
        for (seen, keeps, restart_at, action) in table {
            let facts = Facts { leased: false, keeps, restart_at, ..facts(seen) };
            assert_eq!(step(&facts, &PATIENCE), action, "{seen:?} {keeps}");
        }
        let rests = Facts { leased: false, policy: RestartPolicy::Never, ..facts(exited(0)) };
        assert_eq!(step(&rests, &PATIENCE), Action::Leave);
    }

    #[test]
    fn after_an_engine_failure_nothing_happens_for_a_moment() {
        for wish in [Wish::Run, Wish::Stop, Wish::Drop] {
            for seen in [None, CREATED, RUNNING, exited(0)] {
                let waits = Facts { wish, retry_at: at(1001), ..facts(seen) };
                assert_eq!(step(&waits, &PATIENCE), Action::Leave, "{wish:?} {seen:?}");
            }
        }
    }
}
