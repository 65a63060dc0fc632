//! Carrying out what [`step`](crate::step) decided about one pod. No choices here but what to do when it fails.
//!
//! Each action may die on any line: the next look finds what it left, and decides again.

use std::sync::Arc;
use std::time::Duration;

use common::spec::OnDisconnect;
use common::store::{FinishReport, Outcome, PodRef, StatusReport, Write};
use futures_util::FutureExt;

use crate::backoff;
use crate::life::{Heard, Life};
use crate::runtime::{Container, RuntimeError};
use crate::step::{Action, Exit};
use crate::table::{Ended, Held, Status};

/// How long nothing is tried after the engine failed.
const RETRY: Duration = Duration::from_secs(2);

/// Begins the action, unless the pod changed since it was looked at.
pub(crate) fn carry_out(life: &Arc<Life>, held: Held, container: Option<&Container>, action: Action) {
    let waits = held.retry_at.is_some_and(|at| life.worker.now() < at);
    if action == Action::Leave && (held.told || waits || !life.worker.is_leased()) {
        return;
    }
    if !life.table.take(&held) {
        return;
    }
    let act = Act { life: life.clone(), held, container: container.cloned() };
    life.spawn(act.carry_out(action));
}

struct Act {
    life: Arc<Life>,
    held: Held,
    container: Option<Container>,
}

/// However it ends, also by a panic: whatever came meanwhile is for the next look. What is held no more needs none.
impl Drop for Act {
    fn drop(&mut self) {
        let Held { payload, assignment, .. } = &self.held;
        if self.life.table.update(&payload.id, assignment, |held| held.busy = false).is_some() {
            self.life.look();
        }
    }
}

impl Act {
    async fn carry_out(self, action: Action) {
        match action {
            Action::Leave => {}
            Action::Stop => {
                if self.stop_container().await {
                    self.finish_stopped().await;
                }
            }
            Action::FinishStopped => self.finish_stopped().await,
            Action::Drop => {
                tracing::info!(pod = %self.held.payload.id, "not this node's any more: stopped");
                if self.stop_container().await {
                    self.forget();
                }
            }
            Action::Forget => self.forget(),
            Action::Lost => self.lost().await,
            Action::BackOff { exit, wait, streak } => self.back_off(exit, wait, streak),
            Action::Restart => self.restart().await,
            Action::End { exit } => self.end(exit).await,
        }
        self.tell().await;
    }

    fn pod(&self) -> PodRef<'_> {
        PodRef { id: &self.held.payload.id, assignment: &self.held.assignment }
    }

    fn update(&self, change: impl FnOnce(&mut Held)) {
        self.life.table.update(&self.held.payload.id, &self.held.assignment, change);
    }

    fn forget(&self) {
        self.life.table.forget(&self.held.payload.id, &self.held.assignment);
    }

    /// Whether the container is gone.
    async fn stop_container(&self) -> bool {
        let Some(container) = &self.container else { return true };
        match self.life.worker.runtime.stop(&container.handle, self.held.rules.grace).await {
            Ok(()) => true,
            Err(error) => {
                self.engine_failed("stopping", &error);
                false
            }
        }
    }

    fn engine_failed(&self, what: &str, error: &RuntimeError) {
        tracing::warn!(pod = %self.held.payload.id, %error, "{what} its container failed");
        let at = self.life.worker.now().plus(RETRY);
        self.update(|held| held.retry_at = Some(at));
    }

    async fn finish_stopped(&self) {
        let report = FinishReport {
            outcome: Outcome::Stopped,
            reason: "",
            message: "stopped as asked",
            exit_code: None,
        };
        match self.finish(&report).await {
            Some(Write::Done | Write::Stale) => self.forget(),
            // Nobody asked (any more; Redis may have lost that somebody did): then it is missed.
            Some(Write::Wanted) => self.lost().await,
            None => self.later(),
        }
    }

    async fn finish(&self, report: &FinishReport<'_>) -> Option<Write> {
        let Held { payload, service, .. } = &self.held;
        let session = &self.life.session;
        let finish = || session.finish(self.pod(), &payload.raw, service.as_ref(), report).boxed();
        self.life.insist("finishing a pod", finish).await
    }

    /// Redis did not take it: not at once again.
    fn later(&self) {
        let at = self.life.worker.now().plus(RETRY);
        self.update(|held| held.retry_at = Some(at));
    }

    async fn lost(&self) {
        let raw = &self.held.payload.raw;
        let lost = || self.life.session.lost(self.pod(), raw).boxed();
        match self.life.insist("reporting a lost container", lost).await {
            Some(Write::Done) => {
                tracing::warn!(pod = %self.held.payload.id, "its container is gone; it is started again");
                self.forget();
            }
            // It moved on, or is to be stopped: the next beat says so, and cs is read again.
            Some(Write::Stale | Write::Wanted) => {
                self.forget();
                self.life.look_at_all();
            }
            None => self.later(),
        }
    }

    fn back_off(&self, exit: Exit, wait: Duration, streak: u32) {
        let words = exit.words();
        let message = format!("{words}; next start in {}", seconds(wait));
        tracing::warn!(pod = %self.held.payload.id, "{message}");
        let at = self.life.worker.now().plus(wait);
        self.update(|held| {
            (held.restart_at, held.streak, held.up_since) = (Some(at), streak, None);
            let restarts = held.restarts;
            held.says(Status { reason: "CrashLoopBackOff", message, restarts, exit_code: Some(exit.code) });
        });
    }

    async fn restart(&self) {
        let Some(container) = &self.container else { return };
        let worker = &self.life.worker;
        let under_way = worker.lease.start(worker.now());
        if under_way.is_none() && self.held.rules.on_disconnect == OnDisconnect::Stop {
            return;
        }
        let restarted = worker.runtime.restart(&container.handle).await;
        drop(under_way);
        match restarted {
            Ok(()) => {
                let now = self.life.worker.now();
                tracing::info!(pod = %self.held.payload.id, "started again");
                self.update(|held| {
                    (held.restart_at, held.up_since) = (None, Some(now));
                    held.restarts = held.restarts.saturating_add(1);
                    let restarts = held.restarts;
                    let exit_code = held.status.exit_code;
                    held.says(Status { reason: "", message: String::new(), restarts, exit_code });
                });
            }
            Err(RuntimeError::NotFound(_)) => self.life.look(),
            Err(error @ RuntimeError::Engine(_)) => self.engine_failed("starting", &error),
            Err(RuntimeError::Image(words) | RuntimeError::Refused(words) | RuntimeError::Failed(words)) => {
                self.could_not_restart(words);
            }
        }
    }

    fn could_not_restart(&self, words: String) {
        let patience = self.life.worker.patience();
        let wait = backoff::delay(patience.first, patience.most, self.held.streak);
        let at = self.life.worker.now().plus(wait);
        self.update(|held| {
            held.restart_at = Some(at);
            held.streak = held.streak.saturating_add(1);
            let (restarts, exit_code) = (held.restarts, held.status.exit_code);
            held.says(Status { reason: "StartFailed", message: words, restarts, exit_code });
        });
    }

    async fn end(&self, exit: Exit) {
        let message = exit.words();
        let (outcome, reason) = match exit {
            Exit { out_of_memory: true, .. } => (Outcome::Failed, "OOMKilled"),
            Exit { code: 0, .. } => (Outcome::Succeeded, "Completed"),
            Exit { .. } => (Outcome::Failed, "Error"),
        };
        let report = FinishReport { outcome, reason, message: &message, exit_code: Some(exit.code) };
        match self.finish(&report).await {
            Some(Write::Done) => {
                let Held { payload, assignment, .. } = &self.held;
                let at = self.life.worker.now();
                let ended = Ended { pod: payload.id.clone(), assignment: assignment.clone(), at };
                self.life.table.keep_ended(ended);
                self.forget();
            }
            Some(Write::Stale | Write::Wanted) => {
                self.forget();
                // Its container stands there still.
                self.life.look();
            }
            None => self.later(),
        }
    }

    /// Tells Redis how the pod is, where it has not been told; once for each look, for more news may be better news.
    async fn tell(&self) {
        if !self.life.worker.is_leased() {
            // Redis is away: what is to be done to the pod must not wait for it. The next beat makes up for this.
            return;
        }
        let Some(held) = self.life.table.get(&self.held.payload.id).filter(|held| !held.told) else { return };
        let Status { reason, ref message, restarts, exit_code } = held.status;
        let report = StatusReport { reason, message, restarts: Some(restarts), exit_code };
        let answer = self.life.session.report(self.pod(), &report).await;
        match self.life.heard("reporting on a pod", answer) {
            Heard::Answer(_) => self.update(|now| now.told = now.status == held.status),
            Heard::Again => self.later(),
            Heard::Fenced | Heard::Hopeless => self.update(|now| now.told = true),
        }
    }
}

/// "20 s", "0.5 s".
fn seconds(wait: Duration) -> String {
    let seconds = wait.as_secs_f64();
    if seconds >= 1.0 { format!("{seconds:.0} s") } else { format!("{seconds:.1} s") }
}
