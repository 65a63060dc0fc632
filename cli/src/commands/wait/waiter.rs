//! Polls goals until a common deadline.

use std::time::Duration;

use api_types::{RolloutState, ServiceView};
use client::{Client, ClientError, PodFilter, found};
use model::spec::ContainerSpec;
use output::humanize;
use output::stderr;
use tokio::time::{Instant, timeout};

use super::assess::{self, Assessment, WaitVerdict};
use super::goal::Goal;
use super::hints::Hints;
use super::progress::GoalProgress;
use crate::exit::{ErrorExit, Exit};

const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Pods must have failed for this time, with nothing else going on: a replacement may be on its way.
const FAILED_FOR: Duration = Duration::from_secs(5);
/// Pods that end at once were never ready.
const READY_FOR: Duration = Duration::from_secs(1);
/// Near the deadline.
const LAST_POLL_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_ERROR_LENGTH: usize = 200;
const MAX_PODS: usize = 500;

pub(crate) struct Waiter {
    client: Client,
    deadline: Instant,
}

#[derive(Default)]
struct SeenChange {
    containers: Option<Vec<ContainerSpec>>,
}

impl SeenChange {
    /// A restart does not count.
    fn observe(&mut self, service: &ServiceView, generation: u64) -> bool {
        if service.generation <= generation {
            self.containers = Some(service.pod.containers.clone());
            return false;
        }
        self.containers.as_ref().is_none_or(|containers| *containers != service.pod.containers)
    }
}

struct Poll {
    assessment: Assessment,
    /// At the last poll before the deadline.
    exit_on_timeout: Exit,
}

impl Waiter {
    pub(crate) fn new(client: Client, timeout: Duration) -> Self {
        Self { client, deadline: Instant::now() + timeout }
    }

    pub(crate) async fn wait_for(self, goal: Goal) -> Exit {
        self.wait_for_all(vec![goal]).await
    }

    pub(crate) async fn wait_for_all(self, goals: Vec<Goal>) -> Exit {
        let exits = self.wait_for_each(goals).await;
        exits.into_iter().find(|exit| *exit != Exit::Ok).unwrap_or(Exit::Ok)
    }

    pub(crate) async fn wait_for_each(self, goals: Vec<Goal>) -> Vec<Exit> {
        let mut exits = Vec::new();
        for goal in goals {
            exits.push(self.wait_and_advise(&goal).await);
        }
        exits
    }

    async fn wait_and_advise(&self, goal: &Goal) -> Exit {
        let exit = self.wait(goal).await;
        if matches!(exit, Exit::Error | Exit::TimedOut | Exit::Unschedulable) {
            stderr::note(&format!("For details: kubeleet {}", goal.describe_command()));
            if let Goal::Ready { service, generation } = goal
                && let Ok(Ok(view)) = timeout(LAST_POLL_TIMEOUT, self.client.service(service)).await
                && let Some(advice) = next_step(&view, *generation)
            {
                stderr::note(&advice);
            }
        }
        exit
    }

    async fn wait(&self, goal: &Goal) -> Exit {
        let mut seen = SeenChange::default();
        let mut hints = Hints::open(&self.client, goal).await;
        let mut progress = GoalProgress::start(goal.subject());
        let (mut failed_since, mut ready_since): (Option<Instant>, Option<Instant>) = (None, None);
        loop {
            let started = Instant::now();
            let poll = match self.poll(goal, &mut seen).await {
                Ok(poll) => poll,
                Err(error) => {
                    progress.end("", "failed");
                    stderr::error(&error.to_string());
                    return error.exit();
                }
            };
            let poll_time = started.elapsed();
            let is_over = Instant::now() >= self.deadline;
            let line = &poll.assessment.line;
            match poll.assessment.verdict {
                WaitVerdict::Reached => {
                    let since = *ready_since.get_or_insert(started);
                    let must_last = matches!(goal, Goal::Ready { .. });
                    if !must_last || is_over || since.elapsed() >= READY_FOR {
                        return progress.finish(line, goal.success_word(), Exit::Ok);
                    }
                }
                WaitVerdict::Superseded => {
                    return progress.finish(line, "it will not be ready", Exit::Conflict);
                }
                WaitVerdict::Deleted => return progress.finish(line, "failed", Exit::NotFound),
                WaitVerdict::Failed => {
                    let since = *failed_since.get_or_insert(started);
                    if is_over || since.elapsed() >= FAILED_FOR {
                        return progress.finish(line, "failed", Exit::Error);
                    }
                }
                WaitVerdict::Waiting => failed_since = None,
            }
            let is_reached = poll.assessment.verdict == WaitVerdict::Reached;
            if !is_reached {
                ready_since = None;
            }
            if is_over {
                return progress.finish(line, "timed out", poll.exit_on_timeout);
            }
            // Its last line says it.
            if !is_reached {
                progress.show(line);
            }
            hints.wait(POLL_INTERVAL.min(self.time_left()), poll_time).await;
        }
    }

    async fn stuck(&self, service: &ServiceView, generation: u64) -> Result<Option<Assessment>, ClientError> {
        if let Some(line) = assess::held_for_good(service) {
            return Ok(Some(Assessment::new(line, WaitVerdict::Failed)));
        }
        if !assess::may_be_stuck(service) {
            return Ok(None);
        }
        let filter = PodFilter { service: Some(service.name.to_string()), ..PodFilter::default() };
        let (pods, _) = self.client.some_pods(&filter, MAX_PODS).await?;
        let Some(pod) = assess::stuck_pod(&pods, generation) else { return Ok(None) };
        // Lists of pods do not include runs.
        let pod = found(self.client.pod(pod.uuid.as_str()).await)?;
        Ok(pod.map(|pod| assess::stuck(service, &pod)))
    }

    fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Transient errors count as polls, because daemons restart and Redis fails over.
    async fn poll(&self, goal: &Goal, seen: &mut SeenChange) -> Result<Poll, ClientError> {
        let limit = self.time_left().max(LAST_POLL_TIMEOUT);
        match timeout(limit, self.assess(goal, seen)).await {
            Ok(Ok(assessment)) => {
                let exit = if assessment.is_unschedulable { Exit::Unschedulable } else { Exit::TimedOut };
                Ok(Poll { assessment, exit_on_timeout: exit })
            }
            Ok(Err(error)) if error.is_transient() => Ok(Poll::without_answer(&error.to_string())),
            Ok(Err(error)) => Err(error),
            Err(_) => Ok(Poll::without_answer("the API does not answer")),
        }
    }

    async fn assess(&self, goal: &Goal, seen: &mut SeenChange) -> Result<Assessment, ClientError> {
        match goal {
            Goal::Ready { service, generation } => {
                let service = found(self.client.service(service).await)?;
                let is_superseded =
                    service.as_ref().is_some_and(|service| seen.observe(service, *generation));
                let assessment = assess::ready(service.as_ref(), *generation, is_superseded);
                match service.filter(|_| assessment.verdict == WaitVerdict::Waiting) {
                    Some(service) => Ok(self.stuck(&service, *generation).await?.unwrap_or(assessment)),
                    None => Ok(assessment),
                }
            }
            Goal::Ended { service } => Ok(assess::ended(found(self.client.service(service).await)?.as_ref())),
            Goal::ServiceGone { service } => {
                Ok(assess::service_gone(found(self.client.service(service).await)?.as_ref()))
            }
            Goal::PodGone { id, .. } => {
                Ok(assess::pod_gone(found(self.client.pod(id.as_str()).await)?.as_ref()))
            }
        }
    }
}

impl Poll {
    fn without_answer(error: &str) -> Self {
        let line = humanize::shorten_message(error, MAX_ERROR_LENGTH);
        Self { assessment: Assessment::new(line, WaitVerdict::Waiting), exit_on_timeout: Exit::Unreachable }
    }
}

fn next_step(service: &ServiceView, generation: u64) -> Option<String> {
    let name = &service.name;
    match service.rollout.as_ref().map(|rollout| rollout.state) {
        Some(RolloutState::RolledBack) => None,
        Some(RolloutState::Paused) => Some(format!("To go on: kubeleet rollout resume {name}")),
        _ => (generation > 1).then(|| format!("To go back: kubeleet rollout undo {name}")),
    }
}

#[cfg(test)]
mod tests {
    use api_types::RolloutView;
    use testkit::api_fixtures as fixtures;

    use super::*;

    #[test]
    fn a_change_that_is_paused_is_resumed_and_one_that_fails_is_undone() {
        let step = |state: Option<RolloutState>, generation| {
            let rollout = state.map(|state| RolloutView { state, generation, message: String::new() });
            next_step(&ServiceView { rollout, ..fixtures::service("web") }, generation)
        };
        let resume = Some("To go on: kubeleet rollout resume web".to_owned());
        assert_eq!(step(Some(RolloutState::Paused), 2), resume);
        assert_eq!(step(None, 2).as_deref(), Some("To go back: kubeleet rollout undo web"));
        assert_eq!((step(None, 1), step(Some(RolloutState::RolledBack), 2)), (None, None));
    }
}
