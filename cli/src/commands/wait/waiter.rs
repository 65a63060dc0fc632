//! Polls goals until a common deadline.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::assess::{self, Assessment, WaitVerdict};
use super::goal::Goal;
use super::hints::Hints;
use super::progress::GoalProgress;
use crate::client::{Client, ClientError};
use crate::exit::Exit;
use crate::output::humanize;
use crate::stderr;

/// Time between polls when no event comes.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Pods must have failed for this long, with nothing else going on, before waiting ends: a replacement may be
/// on its way.
const FAILED_FOR: Duration = Duration::from_secs(5);
/// A service must have been ready for this long: what ends at once was never ready.
const READY_FOR: Duration = Duration::from_secs(1);
/// Time limit of the last poll, when the deadline is nearer than that.
const LAST_POLL_TIMEOUT: Duration = Duration::from_secs(2);
/// Characters of an API error in a progress line.
const MAX_ERROR_LENGTH: usize = 200;

/// Waits for goals, with one deadline for all of them.
pub(crate) struct Waiter {
    client: Client,
    deadline: Instant,
}

/// What one poll found.
struct Poll {
    assessment: Assessment,
    /// The exit code if this was the last poll before the deadline.
    exit_on_timeout: Exit,
}

impl Waiter {
    /// Creates a waiter whose deadline is `timeout` from now.
    pub(crate) fn new(client: Client, timeout: Duration) -> Self {
        Self { client, deadline: Instant::now() + timeout }
    }

    /// Waits for one goal, and shows progress on standard error.
    pub(crate) async fn wait_for(self, goal: Goal) -> Exit {
        self.wait_for_all(vec![goal]).await
    }

    /// Waits for one goal after the other. Returns the exit code of the first that was not reached.
    pub(crate) async fn wait_for_all(self, goals: Vec<Goal>) -> Exit {
        let exits = self.wait_for_each(goals).await;
        exits.into_iter().find(|exit| *exit != Exit::Ok).unwrap_or(Exit::Ok)
    }

    /// Waits for one goal after the other. Returns the exit code of each.
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
        }
        exit
    }

    async fn wait(&self, goal: &Goal) -> Exit {
        let mut hints = Hints::open(&self.client, goal).await;
        let mut progress = GoalProgress::start(goal.subject());
        let (mut failed_since, mut ready_since): (Option<Instant>, Option<Instant>) = (None, None);
        loop {
            let started = Instant::now();
            let poll = match self.poll(goal).await {
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
                WaitVerdict::Deleted => return progress.finish(line, "failed", Exit::NotFound),
                WaitVerdict::Failed => {
                    let since = *failed_since.get_or_insert(started);
                    if is_over || since.elapsed() >= FAILED_FOR {
                        return progress.finish(line, "failed", Exit::Error);
                    }
                }
                WaitVerdict::Waiting => failed_since = None,
            }
            if poll.assessment.verdict != WaitVerdict::Reached {
                ready_since = None;
            }
            if is_over {
                return progress.finish(line, "timed out", poll.exit_on_timeout);
            }
            progress.show(line);
            hints.wait(POLL_INTERVAL.min(self.time_left()), poll_time).await;
        }
    }

    fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Polls once. Transient errors count as polls, because daemons restart and Redis fails over.
    async fn poll(&self, goal: &Goal) -> Result<Poll, ClientError> {
        let limit = self.time_left().max(LAST_POLL_TIMEOUT);
        match timeout(limit, self.assess(goal)).await {
            Ok(Ok(assessment)) => {
                let exit = if assessment.is_unschedulable { Exit::Unschedulable } else { Exit::TimedOut };
                Ok(Poll { assessment, exit_on_timeout: exit })
            }
            Ok(Err(error)) if error.is_transient() => Ok(Poll::without_answer(&error.to_string())),
            Ok(Err(error)) => Err(error),
            Err(_) => Ok(Poll::without_answer("the API does not answer")),
        }
    }

    async fn assess(&self, goal: &Goal) -> Result<Assessment, ClientError> {
        match goal {
            Goal::Ready { service, generation } => {
                let service = found(self.client.service(service).await)?;
                Ok(assess::ready(service.as_ref(), *generation))
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

/// Turns status 404 into `None`.
fn found<T>(result: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.status() == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}
