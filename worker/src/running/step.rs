//! Decides the next action about one managed pod from its state. Pure: no clock, no engine, no Redis.

use std::time::Duration;

use daemon::clock::BootInstant;
use engine::ContainerState;
use model::duration;
use model::pod::health::Health;
use model::spec::{RestartPolicy, StartCondition};

const KILLED: i64 = 137;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DesiredState {
    Run,
    /// With a report to Redis.
    Stop,
    /// Without a report.
    Discard,
}

#[derive(Debug, Clone)]
pub(crate) struct PodFacts {
    pub(crate) desired: DesiredState,
    pub(crate) containers: Vec<ContainerFacts>,
    pub(crate) sandbox: SandboxFacts,
    /// Without it Redis cannot be written, and the fence decides about `stop` pods.
    pub(crate) is_leased: bool,
    /// `on_disconnect: keep`.
    pub(crate) keeps_running: bool,
    /// For services that it depends on.
    pub(crate) is_waiting: bool,
    pub(crate) retry_at: Option<BootInstant>,
    pub(crate) now: BootInstant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SandboxFacts {
    NotUsed,
    /// `None` if it does not exist.
    Used(Option<ContainerState>),
}

#[derive(Debug, Clone)]
pub(crate) struct ContainerFacts {
    pub(crate) sidecar: bool,
    /// Another container's index, and its required progress.
    pub(crate) depends_on: Vec<(usize, StartCondition)>,
    /// `None` if it does not exist.
    pub(crate) observed: Option<ContainerState>,
    pub(crate) health: Option<Health>,
    pub(crate) was_unhealthy: bool,
    pub(crate) policy: RestartPolicy,
    pub(crate) crash_streak: u32,
    pub(crate) running_since: Option<BootInstant>,
    /// Restarted after an exit, and not yet counted as well.
    pub(crate) is_recovering: bool,
    pub(crate) ended_with_engine: bool,
    pub(crate) restart_at: Option<BootInstant>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct RestartBackoff {
    /// A restarted container that has run this long counts as well.
    pub(crate) first: Duration,
    pub(crate) max: Duration,
    /// After a run this long the next exit is a first one again.
    pub(crate) healthy_after: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Leave,
    Stop,
    FinishStopped,
    Discard,
    Forget,
    ReportLost,
    /// By index in the specification.
    Containers(Vec<(usize, ContainerAction)>),
    /// Its network is gone.
    Rebuild,
    Finish {
        exit: ContainerExit,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ContainerAction {
    Create,
    BackOff {
        exit: ContainerExit,
        wait: Duration,
        crash_streak: u32,
    },
    Restart,
    /// Counts as no crash.
    StartAgain,
    /// It has run for a while.
    Recover,
    StopUnhealthy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContainerExit {
    pub(crate) code: i64,
    pub(crate) out_of_memory: bool,
}

impl ContainerExit {
    pub(crate) fn describe(self) -> String {
        match (self.out_of_memory, self.was_killed_for_memory()) {
            (true, true) => {
                format!("killed because it used more memory than its limit (exit code {})", self.code)
            }
            (true, false) => format!(
                "exited with code {}; before that one of its processes was killed, because the container used more \
                 memory than its limit",
                self.code
            ),
            (false, _) => format!("exited with code {}", self.code),
        }
    }

    /// The engine reports any killed process, also a child.
    pub(crate) fn was_killed_for_memory(self) -> bool {
        self.out_of_memory && self.code == KILLED
    }

    fn is_success(self) -> bool {
        self.code == 0
    }
}

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
        // The fence may have removed it.
        (DesiredState::Run, false) => Action::Leave,
        (DesiredState::Run, true) => keep_running(facts, backoff),
    }
}

#[derive(Clone)]
enum ContainerStep {
    Leave,
    Act(ContainerAction),
    Ended(ContainerExit),
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

fn container_steps(facts: &PodFacts, backoff: &RestartBackoff) -> Vec<ContainerStep> {
    let of_one = |container| container_step(facts, container, backoff);
    let mut steps: Vec<ContainerStep> = facts.containers.iter().map(of_one).collect();
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

fn end_of_pod(facts: &PodFacts, steps: &[ContainerStep]) -> Option<ContainerExit> {
    let with_steps = || facts.containers.iter().zip(steps);
    let is_over = |step: &ContainerStep| matches!(step, ContainerStep::Ended(_) | ContainerStep::Blocked);
    if !with_steps().all(|(container, step)| container.sidecar || is_over(step)) {
        return None;
    }
    let exits: Vec<ContainerExit> = with_steps()
        .filter_map(|(_, step)| match step {
            ContainerStep::Ended(exit) => Some(*exit),
            ContainerStep::Leave | ContainerStep::Act(_) | ContainerStep::Blocked => None,
        })
        .collect();
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
            after_exit(facts, container, backoff, ContainerExit { code, out_of_memory })
        }
        None if can_create(facts, container) => ContainerStep::Act(ContainerAction::Create),
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
                matches!(state, ContainerState::Exited { code: 0, .. })
            }
        }
    };
    is_due && can_start(facts) && container.depends_on.iter().all(holds)
}

fn after_exit(
    facts: &PodFacts,
    container: &ContainerFacts,
    backoff: &RestartBackoff,
    exit: ContainerExit,
) -> ContainerStep {
    let restarts = match container.policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => !exit.is_success() || container.was_unhealthy,
        RestartPolicy::Never => false,
    };
    match (restarts, container.restart_at) {
        (false, _) => ContainerStep::Ended(exit),
        (true, None) if container.ended_with_engine && can_start(facts) => {
            ContainerStep::Act(ContainerAction::StartAgain)
        }
        (true, None) => {
            let ran_for = container.running_since.map(|since| facts.now.since(since));
            let was_healthy = ran_for.is_some_and(|ran_for| ran_for >= backoff.healthy_after);
            let streak = if was_healthy { 0 } else { container.crash_streak };
            let wait = duration::delay(backoff.first, backoff.max, streak);
            let crash_streak = streak.saturating_add(1);
            ContainerStep::Act(ContainerAction::BackOff { exit, wait, crash_streak })
        }
        (true, Some(at)) if facts.now >= at && can_start(facts) => {
            ContainerStep::Act(ContainerAction::Restart)
        }
        (true, Some(_)) => ContainerStep::Leave,
    }
}

/// A container that would not restart goes on, as with Docker.
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
    (facts.is_leased || facts.keeps_running) && !facts.is_waiting
}

#[cfg(test)]
mod tests;
