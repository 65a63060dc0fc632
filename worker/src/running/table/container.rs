//! One container of a managed pod: its counters and its state.

use daemon::clock::BootInstant;
use model::pod::ContainerProgress;
use model::pod::health::Health;

use super::checks::ContainerChecks;
use super::reasons::{PAUSED, RESTARTED, UNHEALTHY, is_shown_by_checks};

const SHORT_HANDLE: usize = 12;

#[derive(Debug, Clone, Default)]
pub(crate) struct ManagedContainer {
    pub(crate) handle: Option<String>,
    pub(crate) progress: ContainerProgress,
    /// By another client of the engine.
    pub(crate) is_paused: bool,
    pub(crate) checks: ContainerChecks,
    /// It was stopped as unhealthy, and has not restarted since.
    pub(crate) was_unhealthy: bool,
    pub(crate) restarts: u32,
    /// Failed starts, and exits before it ran for long enough, in a row: the backoff grows with it.
    pub(crate) crash_streak: u32,
    pub(crate) running_since: Option<BootInstant>,
    pub(crate) restart_at: Option<BootInstant>,
    /// One of `reasons`, or of a failed start; empty if it is well.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) exit_code: Option<i64>,
}

impl ManagedContainer {
    /// It was restarted, and has not run for long enough to be well.
    pub(crate) fn is_recovering(&self) -> bool {
        self.reason == RESTARTED
    }

    pub(crate) fn set_started(&mut self, now: BootInstant) {
        self.running_since = Some(now);
        self.restart_at = None;
        self.was_unhealthy = false;
        self.checks.set_all(Health::Starting);
    }

    pub(crate) fn problem(&self) -> Option<(&'static str, String)> {
        match self.reason {
            "" if self.is_paused && self.progress == ContainerProgress::Running => {
                let handle: String =
                    self.handle.iter().flat_map(|handle| handle.chars()).take(SHORT_HANDLE).collect();
                let message = "it was paused on the container engine, and answers nothing";
                Some((PAUSED, format!("{message}: docker unpause {handle}")))
            }
            "" if self.progress == ContainerProgress::Running => self.checks.problem(),
            "" => None,
            reason => Some((reason, self.message.clone())),
        }
    }

    /// Probes that say nothing are shown, but are no problem.
    pub(crate) fn remark(&self) -> String {
        match self.progress {
            ContainerProgress::Running => self.checks.inconclusive().unwrap_or_default(),
            ContainerProgress::Waiting | ContainerProgress::Ended => String::new(),
        }
    }

    /// Takes over what the record says of a container that runs on, as after a restart of the worker.
    pub(crate) fn take_over_state(
        &mut self,
        now: BootInstant,
        (restarts, exit_code): (u32, Option<i64>),
        reason: &str,
        message: &str,
    ) {
        let is_unwell = !reason.is_empty();
        self.restarts = restarts;
        if self.checks.exist() {
            // The checks start anew from the reported state.
            self.running_since = Some(now);
        }
        if !is_unwell {
            self.checks.set_all(Health::Healthy);
        } else if is_shown_by_checks(reason) {
            self.was_unhealthy = reason == UNHEALTHY;
        } else {
            // Whatever it was, it runs now: it must run for a while to be well again.
            self.running_since = Some(now);
            self.exit_code = exit_code;
            self.set_reason(RESTARTED, message.to_owned());
        }
    }

    pub(super) fn is_healthy_again(&self) -> bool {
        self.was_unhealthy && self.checks.health() == Some(Health::Healthy)
    }

    pub(crate) fn set_reason(&mut self, reason: &'static str, message: String) {
        (self.reason, self.message) = (reason, message);
    }
}
