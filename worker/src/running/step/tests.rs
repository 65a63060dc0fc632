//! Decisions about pods of one container and of several.

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

fn exit(code: i64) -> ContainerExit {
    ContainerExit { code, out_of_memory: false }
}

fn at(seconds: u64) -> Option<BootInstant> {
    Some(BootInstant { millis: seconds * 1000 })
}

fn facts(observed: Option<ContainerState>) -> PodFacts {
    pod(container(observed))
}

fn pod(container: ContainerFacts) -> PodFacts {
    PodFacts {
        is_waiting: false,
        desired: DesiredState::Run,
        containers: vec![container],
        sandbox: SandboxFacts::NotUsed,
        is_leased: true,
        keeps_running: true,
        retry_at: None,
        now: BootInstant { millis: 1_000_000 },
    }
}

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
        ended_with_engine: false,
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
    // The exit code is the first process's.
    let with_killed_child = ContainerExit { code: 0, out_of_memory: true };
    let observed = Some(ContainerState::Exited { code: 0, out_of_memory: true });
    let facts = ContainerFacts { policy: RestartPolicy::OnFailure, ..container(observed) };
    assert_eq!(step(&pod(facts), &BACKOFF), Action::Finish { exit: with_killed_child });
    for (code, killed, note) in [
        (0, false, "one of its processes"),
        (1, false, "one of its processes"),
        (137, true, "killed because"),
    ] {
        let exit = ContainerExit { code, out_of_memory: true };
        assert_eq!(exit.was_killed_for_memory(), killed, "{code}");
        assert!(exit.describe().contains(note), "{}", exit.describe());
    }
}

#[test]
fn what_ended_with_its_engine_is_started_again_at_once() {
    let table = [
        (RestartPolicy::Always, 0, Action::Containers(vec![(0, ContainerAction::StartAgain)])),
        (RestartPolicy::Always, 137, Action::Containers(vec![(0, ContainerAction::StartAgain)])),
        (RestartPolicy::OnFailure, 143, Action::Containers(vec![(0, ContainerAction::StartAgain)])),
        (RestartPolicy::OnFailure, 0, Action::Finish { exit: exit(0) }),
        (RestartPolicy::Never, 137, Action::Finish { exit: exit(137) }),
    ];
    for (policy, code, action) in table {
        let facts =
            ContainerFacts { policy, ended_with_engine: true, crash_streak: 3, ..container(exited(code)) };
        assert_eq!(step(&pod(facts), &BACKOFF), action, "{policy:?} {code}");
    }
    let waiting = ContainerFacts { restart_at: at(9_999), ..container(exited(1)) };
    let waits = step(&pod(ContainerFacts { ended_with_engine: true, ..waiting }), &BACKOFF);
    assert_eq!(waits, Action::Leave, "it had crashed before");
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
    assert_eq!(step(&pod(recovering), &BACKOFF), Action::Leave, "it is not well before its check says so");
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

#[test]
fn a_pod_that_waits_for_services_is_not_started_again_and_can_be_stopped() {
    let exited = Some(ContainerState::Exited { code: 137, out_of_memory: false });
    let due = ContainerFacts { restart_at: at(999), ..container(exited) };
    assert_eq!(
        step(&pod(due.clone()), &BACKOFF),
        Action::Containers(vec![(0, ContainerAction::Restart)]),
        "without a wait"
    );
    assert_eq!(step(&PodFacts { is_waiting: true, ..pod(due.clone()) }, &BACKOFF), Action::Leave);
    let stopping = PodFacts { is_waiting: true, desired: DesiredState::Stop, ..pod(due) };
    assert_eq!(step(&stopping, &BACKOFF), Action::Stop);
}
