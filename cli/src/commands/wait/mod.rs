//! `--wait`: looks until it is so, it can not become so, or the time is over.
//!
//! Events say when looking again is worth it; they are hints, so it also looks on its own.

mod hints;
mod look;
mod progress;
#[cfg(test)]
mod tests;

use std::time::Duration;

use common::ids::PodId;
use tokio::time::{Instant, timeout};

use self::hints::Hints;
use self::look::{Look, Verdict};
use self::progress::Progress;
use crate::client::{Client, ClientError};
use crate::exit::{self, Exit};
use crate::output::words;

/// How long to sleep without a hint.
const POLL: Duration = Duration::from_millis(500);
/// How long pods must have failed, with nothing else going on, until it is believed: a replacement may be on its way.
const FAILED_FOR: Duration = Duration::from_secs(5);

/// How long the last look may take, when the time is over otherwise.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// What is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Goal {
    /// All pods of a service run, and are of this generation or a later one.
    Ready {
        /// Its name.
        service: String,
        /// The generation of the write that is waited for.
        generation: u64,
    },
    /// A service is forgotten: its last pod is gone.
    ServiceGone {
        /// Its name.
        service: String,
    },
    /// A pod does not run any more.
    PodGone {
        /// Its uuid.
        id: PodId,
    },
}

/// Waits with one deadline for everything.
pub(super) struct Waiter {
    client: Client,
    deadline: Instant,
}

impl Waiter {
    /// From now on, for so long.
    pub(super) fn new(client: Client, timeout: Duration) -> Self {
        Self { client, deadline: Instant::now() + timeout }
    }

    /// Waits for one thing, and tells how it goes on standard error.
    pub(super) async fn until(self, goal: Goal) -> Exit {
        self.until_all(vec![goal]).await
    }

    /// Waits for one thing after the other; the exit code is that of the first that did not become so.
    pub(super) async fn until_all(self, goals: Vec<Goal>) -> Exit {
        let mut worst = Exit::Ok;
        for goal in goals {
            let exit = self.wait(&goal).await;
            worst = if worst == Exit::Ok { exit } else { worst };
        }
        worst
    }

    async fn wait(&self, goal: &Goal) -> Exit {
        let exit = self.watch(goal).await;
        if matches!(exit, Exit::Error | Exit::TimedOut | Exit::Unschedulable) {
            exit::note(&format!("{}: `kubeleet {}` says more", goal.subject(), goal.advice()));
        }
        exit
    }

    async fn watch(&self, goal: &Goal) -> Exit {
        let mut hints = Hints::open(&self.client, goal).await;
        let mut progress = Progress::begin(goal.subject());
        let mut failed_since: Option<Instant> = None;
        loop {
            let begun = Instant::now();
            let (Look { line, verdict, .. }, on_timeout) = match self.glance(goal).await {
                Ok(seen) => seen,
                Err(error) => {
                    progress.end("", "failed");
                    exit::complain(&error.to_string());
                    return error.exit();
                }
            };
            let spent = begun.elapsed();
            let over = Instant::now() >= self.deadline;
            match verdict {
                Verdict::Reached => return progress.finish(&line, goal.reached(), Exit::Ok),
                Verdict::Lost => return progress.finish(&line, "failed", Exit::NotFound),
                Verdict::Failed => {
                    let since = *failed_since.get_or_insert(begun);
                    if over || since.elapsed() >= FAILED_FOR {
                        return progress.finish(&line, "failed", Exit::Error);
                    }
                }
                Verdict::Waiting => failed_since = None,
            }
            if over {
                return progress.finish(&line, "timed out", on_timeout);
            }
            progress.show(&line);
            hints.wait(POLL.min(self.left()), spent).await;
        }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// One look, and how the command ends if there is no time for another. Errors that may pass are looks, too:
    /// daemons restart, and masters change.
    async fn glance(&self, goal: &Goal) -> Result<(Look, Exit), ClientError> {
        let within = self.left().max(LAST_LOOK);
        let away = |why: &str| {
            let line = words::shorten(why, 200);
            Ok((Look { line, verdict: Verdict::Waiting, unschedulable: false }, Exit::Unreachable))
        };
        match timeout(within, self.look(goal)).await {
            Ok(Ok(look)) if look.unschedulable => Ok((look, Exit::Unschedulable)),
            Ok(Ok(look)) => Ok((look, Exit::TimedOut)),
            Ok(Err(error)) if error.is_passing() => away(&error.to_string()),
            Ok(Err(error)) => Err(error),
            Err(_) => away("the API does not answer"),
        }
    }

    async fn look(&self, goal: &Goal) -> Result<Look, ClientError> {
        match goal {
            Goal::Ready { service, generation } => {
                let found = found(self.client.service(service).await)?;
                Ok(look::ready(found.as_ref(), *generation))
            }
            Goal::ServiceGone { service } => {
                Ok(look::service_gone(found(self.client.service(service).await)?.as_ref()))
            }
            Goal::PodGone { id } => Ok(look::pod_gone(found(self.client.pod(id.as_str()).await)?.as_ref())),
        }
    }
}

fn found<T>(result: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.status() == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Goal {
    /// What a line of progress begins with.
    fn subject(&self) -> String {
        match self {
            Goal::Ready { service, .. } | Goal::ServiceGone { service } => service.clone(),
            Goal::PodGone { id } => format!("pod {}", id.short()),
        }
    }

    /// The command that says more.
    fn advice(&self) -> String {
        match self {
            Goal::Ready { service, .. } | Goal::ServiceGone { service } => {
                format!("service describe {service}")
            }
            Goal::PodGone { id } => format!("pod describe {id}"),
        }
    }

    /// The word at the end when all went well.
    fn reached(&self) -> &'static str {
        match self {
            Goal::Ready { .. } => "ready",
            Goal::ServiceGone { .. } | Goal::PodGone { .. } => "gone",
        }
    }
}
