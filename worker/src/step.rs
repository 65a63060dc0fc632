//! Decides what to do about one managed pod: facts in, one action out. Pure: no clock, no engine, no Redis.

use std::time::Duration;

use common::backoff;
use common::clock::BootInstant;
use common::health::Health;
use common::spec::{RestartPolicy, StartCondition};

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
    /// Its containers, in the order of its specification.
    pub(crate) containers: Vec<ContainerFacts>,
    /// The container that holds the network of the others.
    pub(crate) sandbox: SandboxFacts,
    /// Whether this worker's lease is valid. Without it Redis cannot be written, and the fence decides about
    /// `stop` pods.
    pub(crate) is_leased: bool,
    /// Whether the pod goes on while Redis is unavailable (`on_disconnect: keep`).
    pub(crate) keeps_running: bool,
    /// Nothing is to be done before this moment, because the last action failed.
    pub(crate) retry_at: Option<BootInstant>,
    pub(crate) now: BootInstant,
}

/// What the decision depends on about the sandbox of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SandboxFacts {
    /// The pod has none.
    NotUsed,
    /// Its state on the engine; `None` if it does not exist.
    Used(Option<ContainerState>),
}

/// What the decision about one container depends on.
#[derive(Debug, Clone)]
pub(crate) struct ContainerFacts {
    /// Whether the pod's end does not wait for it.
    pub(crate) sidecar: bool,
    /// What has to be before it is started for the first time: the index of another container, and how far that
    /// one has to be.
    pub(crate) depends_on: Vec<(usize, StartCondition)>,
    /// Its state on the engine; `None` if it does not exist.
    pub(crate) observed: Option<ContainerState>,
    /// What its health check has shown; `None` if it has none.
    pub(crate) health: Option<Health>,
    /// It was stopped because it was unhealthy: its exit is a failure, whatever its code.
    pub(crate) was_unhealthy: bool,
    pub(crate) policy: RestartPolicy,
    /// Exits in a row before this one, without a healthy run between them.
    pub(crate) crash_streak: u32,
    /// Since when it runs, as far as is known.
    pub(crate) running_since: Option<BootInstant>,
    /// Whether it was started again after an exit and has not counted as well since then.
    pub(crate) is_recovering: bool,
    /// When it is to be started again after its exit; `None` until that is decided.
    pub(crate) restart_at: Option<BootInstant>,
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

/// What to do about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing for now.
    Leave,
    /// Stop and remove its containers, then finish the pod as stopped.
    Stop,
    /// It has no container: finish the pod as stopped.
    FinishStopped,
    /// Stop and remove its containers, then forget the pod.
    Discard,
    /// It has no container: forget the pod.
    Forget,
    /// Its containers are gone: report it lost, so that the pod is started anew.
    ReportLost,
    /// Act on some of its containers: index in the specification, and what to do.
    Containers(Vec<(usize, ContainerAction)>),
    /// Its network is gone, and its containers could reach nothing: report it lost, then stop and remove them.
    Rebuild,
    /// Its containers exited and are not to be started again: stop the sidecars, then finish the pod.
    Finish { exit: Exit },
}

/// What to do about one container of a pod that is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ContainerAction {
    /// It does not exist, and what it depends on is there: create and start it.
    Create,
    /// It exited: wait before its next start.
    BackOff { exit: Exit, wait: Duration, crash_streak: u32 },
    /// Start it again.
    Restart,
    /// It was started again and has run for a while: it is well.
    Recover,
    /// Its health check has failed: stop it, so that it is started again.
    StopUnhealthy,
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
    let has_container = facts.containers.iter().any(|container| container.observed.is_some());
    let exists = has_container || matches!(facts.sandbox, SandboxFacts::Used(Some(_)));
    match (facts.desired, exists) {
        (DesiredState::Discard, true) => Action::Discard,
        (DesiredState::Discard, false) => Action::Forget,
        (DesiredState::Stop, true) => Action::Stop,
        (DesiredState::Stop, false) => Action::FinishStopped,
        (DesiredState::Run, false) if facts.is_leased => Action::ReportLost,
        // The fence may have removed it, and without a lease Redis cannot be told anyway.
        (DesiredState::Run, false) => Action::Leave,
        (DesiredState::Run, true) => keep_running(facts, backoff),
    }
}

/// What a pod that is to run needs from one of its containers.
#[derive(Clone)]
enum ContainerStep {
    Leave,
    Act(ContainerAction),
    /// It has ended for good.
    Ended(Exit),
    /// It can never start, because one that it depends on has failed for good.
    Blocked,
}

fn keep_running(facts: &PodFacts, backoff: &RestartBackoff) -> Action {
    let steps = container_steps(facts, backoff);
    if let Some(exit) = end_of_pod(facts, &steps) {
        return if facts.is_leased { Action::Finish { exit } } else { Action::Leave };
    }
    let has_network = match facts.sandbox {
        SandboxFacts::NotUsed
        | SandboxFacts::Used(Some(ContainerState::Running | ContainerState::Unknown)) => true,
        SandboxFacts::Used(None | Some(ContainerState::Created | ContainerState::Exited { .. })) => false,
    };
    if !has_network {
        return if facts.is_leased { Action::Rebuild } else { Action::Leave };
    }
    let actions = steps.into_iter().enumerate().filter_map(|(index, step)| match step {
        ContainerStep::Act(action) => Some((index, action)),
        ContainerStep::Leave | ContainerStep::Ended(_) | ContainerStep::Blocked => None,
    });
    let actions: Vec<_> = actions.collect();
    if actions.is_empty() { Action::Leave } else { Action::Containers(actions) }
}

/// Returns what each container needs. One that another depends on may stand after it in the specification.
fn container_steps(facts: &PodFacts, backoff: &RestartBackoff) -> Vec<ContainerStep> {
    let of_one = |container| container_step(facts, container, backoff);
    let mut steps: Vec<ContainerStep> = facts.containers.iter().map(of_one).collect();
    // A chain of containers that cannot start has at most as many links as there are containers.
    for _ in 0..steps.len() {
        for (index, container) in facts.containers.iter().enumerate() {
            if container.observed.is_none() && is_blocked(container, &steps) {
                steps[index] = ContainerStep::Blocked;
            }
        }
    }
    steps
}

fn is_blocked(container: &ContainerFacts, steps: &[ContainerStep]) -> bool {
    container.depends_on.iter().any(|(other, condition)| match steps.get(*other) {
        Some(ContainerStep::Blocked) => true,
        Some(ContainerStep::Ended(exit)) => {
            *condition == StartCondition::ServiceCompletedSuccessfully && !exit.is_success()
        }
        Some(ContainerStep::Leave | ContainerStep::Act(_)) | None => false,
    })
}

/// Returns how the pod ended, if all its containers but sidecars have ended for good or can never start.
fn end_of_pod(facts: &PodFacts, steps: &[ContainerStep]) -> Option<Exit> {
    let with_steps = || facts.containers.iter().zip(steps);
    let is_over = |step: &ContainerStep| matches!(step, ContainerStep::Ended(_) | ContainerStep::Blocked);
    if !with_steps().all(|(container, step)| container.sidecar || is_over(step)) {
        return None;
    }
    let exits: Vec<Exit> = with_steps()
        .filter_map(|(_, step)| match step {
            ContainerStep::Ended(exit) => Some(*exit),
            ContainerStep::Leave | ContainerStep::Act(_) | ContainerStep::Blocked => None,
        })
        .collect();
    pod_exit(&exits)
}

/// Returns how a pod ended: as the first of its containers that failed, else as the first.
fn pod_exit(exits: &[Exit]) -> Option<Exit> {
    exits.iter().find(|exit| !exit.is_success()).or(exits.first()).copied()
}

fn container_step(facts: &PodFacts, container: &ContainerFacts, backoff: &RestartBackoff) -> ContainerStep {
    match container.observed {
        Some(ContainerState::Running) if is_to_be_replaced(facts, container) => {
            ContainerStep::Act(ContainerAction::StopUnhealthy)
        }
        Some(ContainerState::Running) if has_recovered(facts.now, container, backoff) => {
            ContainerStep::Act(ContainerAction::Recover)
        }
        Some(ContainerState::Created) if can_start(facts) => ContainerStep::Act(ContainerAction::Restart),
        Some(ContainerState::Exited { code, out_of_memory }) => {
            after_exit(facts, container, backoff, Exit { code, out_of_memory })
        }
        None if can_create(facts, container) => ContainerStep::Act(ContainerAction::Create),
        // A container that the engine cannot tell about is left alone until it can.
        Some(ContainerState::Running | ContainerState::Unknown | ContainerState::Created) | None => {
            ContainerStep::Leave
        }
    }
}

fn can_create(facts: &PodFacts, container: &ContainerFacts) -> bool {
    let is_due = container.restart_at.is_none_or(|at| facts.now >= at);
    let holds = |(other, condition): &(usize, StartCondition)| {
        let other = facts.containers.get(*other);
        let health = other.and_then(|other| other.health);
        match (condition, other.and_then(|other| other.observed)) {
            (_, None | Some(ContainerState::Created | ContainerState::Unknown)) => false,
            (StartCondition::ServiceStarted, Some(_)) => true,
            (StartCondition::ServiceHealthy, Some(state)) => {
                state == ContainerState::Running && health == Some(Health::Healthy)
            }
            (StartCondition::ServiceCompletedSuccessfully, Some(state)) => {
                state == ContainerState::Exited { code: 0, out_of_memory: false }
            }
        }
    };
    is_due && can_start(facts) && container.depends_on.iter().all(holds)
}

fn after_exit(
    facts: &PodFacts,
    container: &ContainerFacts,
    backoff: &RestartBackoff,
    exit: Exit,
) -> ContainerStep {
    let restarts = match container.policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => !exit.is_success() || container.was_unhealthy,
        RestartPolicy::Never => false,
    };
    match (restarts, container.restart_at) {
        (false, _) => ContainerStep::Ended(exit),
        (true, None) => {
            let ran_for = container.running_since.map(|since| facts.now.since(since));
            let was_healthy = ran_for.is_some_and(|ran_for| ran_for >= backoff.healthy_after);
            let streak = if was_healthy { 0 } else { container.crash_streak };
            let wait = backoff::delay(backoff.first, backoff.max, streak);
            let crash_streak = streak.saturating_add(1);
            ContainerStep::Act(ContainerAction::BackOff { exit, wait, crash_streak })
        }
        (true, Some(at)) if facts.now >= at && can_start(facts) => {
            ContainerStep::Act(ContainerAction::Restart)
        }
        (true, Some(_)) => ContainerStep::Leave,
    }
}

/// Whether a container is stopped because it is unhealthy. One that would not be started again is left running, as
/// with Docker.
fn is_to_be_replaced(facts: &PodFacts, container: &ContainerFacts) -> bool {
    let is_unhealthy = container.health == Some(Health::Unhealthy);
    is_unhealthy && container.policy != RestartPolicy::Never && can_start(facts)
}

fn has_recovered(now: BootInstant, container: &ContainerFacts, backoff: &RestartBackoff) -> bool {
    let ran_for = container.running_since.map(|since| now.since(since));
    let is_well = container.health.is_none_or(|health| health == Health::Healthy);
    container.is_recovering && is_well && ran_for.is_some_and(|ran_for| ran_for >= backoff.first)
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
        pod(container(observed))
    }

    /// The same, with this only container.
    fn pod(container: ContainerFacts) -> PodFacts {
        PodFacts {
            desired: DesiredState::Run,
            containers: vec![container],
            sandbox: SandboxFacts::NotUsed,
            is_leased: true,
            keeps_running: true,
            retry_at: None,
            now: BootInstant { millis: 1_000_000 },
        }
    }

    /// A container that runs since second 990.
    fn container(observed: Option<ContainerState>) -> ContainerFacts {
        ContainerFacts {
            sidecar: false,
            depends_on: Vec::new(),
            observed,
            health: None,
            was_unhealthy: false,
            policy: RestartPolicy::Always,
            crash_streak: 0,
            running_since: at(990),
            is_recovering: false,
            restart_at: None,
        }
    }

    fn act(action: ContainerAction) -> Action {
        Action::Containers(vec![(0, action)])
    }

    fn restart() -> Action {
        act(ContainerAction::Restart)
    }

    fn back_off(code: i64, seconds: u64, crash_streak: u32) -> Action {
        act(ContainerAction::BackOff { exit: exit(code), wait: Duration::from_secs(seconds), crash_streak })
    }

    #[test]
    fn desired_and_observed_state_decide_the_action() {
        let table = [
            (DesiredState::Run, None, Action::ReportLost),
            (DesiredState::Run, CREATED, restart()),
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
                step(&pod(ContainerFacts { policy, ..container(exited(code)) }), &BACKOFF),
                action,
                "{policy:?} {code}"
            );
        }
        let killed = Some(ContainerState::Exited { code: 0, out_of_memory: true });
        let action =
            step(&pod(ContainerFacts { policy: RestartPolicy::OnFailure, ..container(killed) }), &BACKOFF);
        let Action::Containers(actions) = &action else { panic!("out of memory is a failure: {action:?}") };
        assert!(matches!(actions[..], [(0, ContainerAction::BackOff { .. })]), "{action:?}");
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
                step(
                    &pod(ContainerFacts { crash_streak: streak, running_since, ..container(exited(1)) }),
                    &BACKOFF
                ),
                action,
                "{streak}"
            );
        }
    }

    #[test]
    fn a_restarted_container_is_well_when_it_has_run_as_long_as_the_first_wait() {
        let table = [
            (RUNNING, at(990), act(ContainerAction::Recover)),
            (RUNNING, at(991), Action::Leave),
            (RUNNING, None, Action::Leave),
            (Some(ContainerState::Unknown), at(990), Action::Leave),
        ];
        for (observed, running_since, action) in table {
            let facts = pod(ContainerFacts { is_recovering: true, running_since, ..container(observed) });
            assert_eq!(step(&facts, &BACKOFF), action, "{observed:?} {running_since:?}");
        }
    }

    #[test]
    fn an_exited_container_is_not_started_before_its_time() {
        for (restart_at, action) in [(at(1001), Action::Leave), (at(1000), restart()), (at(3), restart())] {
            assert_eq!(
                step(&pod(ContainerFacts { restart_at, ..container(exited(1)) }), &BACKOFF),
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
            (CREATED, true, None, restart()),
            (CREATED, false, None, Action::Leave),
            (exited(1), true, at(999), restart()),
            (exited(1), false, at(999), Action::Leave),
            (RUNNING, true, None, Action::Leave),
            (RUNNING, false, None, Action::Leave),
        ];
        for (observed, keeps_running, restart_at, action) in table {
            let container = ContainerFacts { restart_at, ..container(observed) };
            let facts = PodFacts { is_leased: false, keeps_running, ..pod(container) };
            assert_eq!(step(&facts, &BACKOFF), action, "{observed:?} {keeps_running}");
        }
        let container = ContainerFacts { policy: RestartPolicy::Never, ..container(exited(0)) };
        let ended = PodFacts { is_leased: false, ..pod(container) };
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

    /// A pod of a migration that the others wait for, a web server, and a sidecar of it.
    fn several(states: [Option<ContainerState>; 3]) -> PodFacts {
        let [migration, web, sidecar] = states;
        let completed = (0, StartCondition::ServiceCompletedSuccessfully);
        let containers = vec![
            ContainerFacts { policy: RestartPolicy::OnFailure, ..container(migration) },
            ContainerFacts { policy: RestartPolicy::Never, depends_on: vec![completed], ..container(web) },
            ContainerFacts {
                sidecar: true,
                depends_on: vec![(1, StartCondition::ServiceStarted)],
                ..container(sidecar)
            },
        ];
        let sandbox = SandboxFacts::Used(Some(ContainerState::Running));
        PodFacts { containers, sandbox, ..facts(None) }
    }

    #[test]
    fn containers_start_in_the_order_of_what_they_depend_on() {
        let create = |index| Action::Containers(vec![(index, ContainerAction::Create)]);
        let (running, ended) = (RUNNING, exited(0));
        let table = [
            ([None, None, None], create(0)),
            ([running, None, None], Action::Leave),
            ([ended, None, None], create(1)),
            ([ended, CREATED, None], Action::Containers(vec![(1, ContainerAction::Restart)])),
            ([ended, running, None], create(2)),
            ([ended, running, running], Action::Leave),
            // One that is gone is created again, and the others go on.
            ([ended, None, running], create(1)),
            ([ended, exited(0), running], Action::Finish { exit: exit(0) }),
            ([ended, exited(3), exited(1)], Action::Finish { exit: exit(3) }),
        ];
        for (states, action) in table {
            assert_eq!(step(&several(states), &BACKOFF), action, "{states:?}");
        }
    }

    #[test]
    fn what_depends_on_one_that_has_failed_for_good_never_starts_and_the_pod_fails() {
        let mut facts = several([exited(7), None, None]);
        let action = step(&facts, &BACKOFF);
        assert_eq!(action, back_off(7, 10, 1), "a migration that is tried again holds up the others");
        facts.containers[0].policy = RestartPolicy::Never;
        assert_eq!(step(&facts, &BACKOFF), Action::Finish { exit: exit(7) });
    }

    #[test]
    fn a_pod_whose_network_is_gone_is_built_anew_unless_it_has_ended() {
        let gone = [None, exited(255), CREATED].map(SandboxFacts::Used);
        for sandbox in gone {
            let running = PodFacts { sandbox, ..several([exited(0), RUNNING, RUNNING]) };
            assert_eq!(step(&running, &BACKOFF), Action::Rebuild, "{sandbox:?}");
            let ended = PodFacts { sandbox, ..several([exited(0), exited(0), exited(255)]) };
            assert_eq!(step(&ended, &BACKOFF), Action::Finish { exit: exit(0) }, "{sandbox:?}");
            let unleased = PodFacts { is_leased: false, ..running };
            assert_eq!(step(&unleased, &BACKOFF), Action::Leave, "{sandbox:?}");
        }
        let lost = PodFacts { sandbox: SandboxFacts::Used(None), ..several([None; 3]) };
        assert_eq!(step(&lost, &BACKOFF), Action::ReportLost);
        let only_sandbox = PodFacts { desired: DesiredState::Stop, ..several([None; 3]) };
        assert_eq!(step(&only_sandbox, &BACKOFF), Action::Stop);
    }

    #[test]
    fn an_unhealthy_container_is_stopped_if_it_would_be_started_again() {
        let table = [
            (Health::Unhealthy, RestartPolicy::Always, act(ContainerAction::StopUnhealthy)),
            (Health::Unhealthy, RestartPolicy::OnFailure, act(ContainerAction::StopUnhealthy)),
            (Health::Unhealthy, RestartPolicy::Never, Action::Leave),
            (Health::Starting, RestartPolicy::Always, Action::Leave),
            (Health::Healthy, RestartPolicy::Always, Action::Leave),
        ];
        for (health, policy, action) in table {
            let facts = pod(ContainerFacts { health: Some(health), policy, ..container(RUNNING) });
            assert_eq!(step(&facts, &BACKOFF), action, "{health:?} {policy:?}");
        }
        let stopped =
            ContainerFacts { was_unhealthy: true, policy: RestartPolicy::OnFailure, ..container(exited(0)) };
        assert_eq!(step(&pod(stopped), &BACKOFF), back_off(0, 10, 1), "that it ended with 0 is no success");
        let recovering =
            ContainerFacts { is_recovering: true, health: Some(Health::Starting), ..container(RUNNING) };
        assert_eq!(
            step(&pod(recovering), &BACKOFF),
            Action::Leave,
            "it is not well before its check says so"
        );
    }

    #[test]
    fn a_container_waits_until_the_other_one_is_healthy() {
        let mut facts = several([RUNNING, None, None]);
        facts.containers[1].depends_on = vec![(0, StartCondition::ServiceHealthy)];
        for (health, is_started) in
            [(None, false), (Some(Health::Starting), false), (Some(Health::Healthy), true)]
        {
            facts.containers[0].health = health;
            let created = step(&facts, &BACKOFF) == Action::Containers(vec![(1, ContainerAction::Create)]);
            assert_eq!(created, is_started, "{health:?}");
        }
    }

    #[test]
    fn a_container_that_could_not_be_created_waits_for_its_time() {
        for (restart_at, is_due) in [(at(1001), false), (at(1000), true)] {
            let mut facts = several([None; 3]);
            facts.containers[0].restart_at = restart_at;
            let created = step(&facts, &BACKOFF) == Action::Containers(vec![(0, ContainerAction::Create)]);
            assert_eq!(created, is_due, "{restart_at:?}");
        }
    }
}
