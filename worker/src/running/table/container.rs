//! One container of a managed pod: what this worker counts about it, and how it is doing.

use daemon::clock::BootInstant;
use model::pod::ContainerProgress;
use model::pod::health::Health;

use super::checks::ContainerChecks;
use super::reasons::{PAUSED, RESTARTED, UNHEALTHY, is_shown_by_checks};

/// How much of an engine's handle people write.
const SHORT_HANDLE: usize = 12;

/// What this worker knows of one container of a pod. What it is to be is in the pod's specification.
#[derive(Debug, Clone, Default)]
pub(crate) struct ManagedContainer {
    /// The engine's handle, as far as it is known.
    pub(crate) handle: Option<String>,
    /// Whether it was started and has ended, as the engine told last.
    pub(crate) progress: ContainerProgress,
    /// It is paused, by another client of the engine.
    pub(crate) is_paused: bool,
    /// Its checks, and what they have shown.
    pub(crate) checks: ContainerChecks,
    /// It was stopped because it was unhealthy, and has not been started again since.
    pub(crate) was_unhealthy: bool,
    /// How often it was started again, over the pod's whole life.
    pub(crate) restarts: u32,
    /// Exits in a row without a healthy run between them.
    pub(crate) crash_streak: u32,
    /// Since when it runs, as far as is known.
    pub(crate) running_since: Option<BootInstant>,
    /// When it is to be started again after an exit.
    pub(crate) restart_at: Option<BootInstant>,
    /// One word in CamelCase; empty if it is well.
    pub(crate) reason: &'static str,
    /// The same in a sentence.
    pub(crate) message: String,
    /// The exit code of its last run.
    pub(crate) exit_code: Option<i64>,
}

impl ManagedContainer {
    /// Whether it was started again after an exit and has not counted as well since then.
    pub(crate) fn is_recovering(&self) -> bool {
        self.reason == RESTARTED
    }

    /// It was started now.
    pub(crate) fn set_started(&mut self, now: BootInstant) {
        self.running_since = Some(now);
        self.restart_at = None;
        self.was_unhealthy = false;
        self.checks.reset();
    }

    /// Returns why it is not as it should be: a reason and a sentence.
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

    /// Returns what there is to say although it is as it should be; empty if nothing.
    pub(crate) fn remark(&self) -> String {
        match self.progress {
            ContainerProgress::Running => self.checks.inconclusive().unwrap_or_default(),
            ContainerProgress::Waiting | ContainerProgress::Ended => String::new(),
        }
    }

    /// Takes over what an earlier session counted: restarts, and the exit code of the last run.
    pub(crate) fn recover(
        &mut self,
        now: BootInstant,
        (restarts, exit_code): (u32, Option<i64>),
        reason: &str,
        message: &str,
    ) {
        let is_unwell = !reason.is_empty();
        self.restarts = restarts;
        if self.checks.exist() {
            // The checks begin anew, from what was reported.
            self.running_since = Some(now);
        }
        if !is_unwell {
            self.checks.set_passed();
        } else if is_shown_by_checks(reason) {
            self.was_unhealthy = reason == UNHEALTHY;
        } else {
            // It was not well when this worker's predecessor ended: it has to run for a while to be well
            // again.
            self.running_since = Some(now);
            self.exit_code = exit_code;
            self.set_reason(RESTARTED, message.to_owned());
        }
    }

    /// Returns whether nothing is to end it for its health any more, as was to be or as was reported.
    pub(super) fn has_recovered(&self) -> bool {
        self.was_unhealthy && self.checks.health() == Some(Health::Healthy)
    }

    /// Changes how it is doing.
    pub(crate) fn set_reason(&mut self, reason: &'static str, message: String) {
        (self.reason, self.message) = (reason, message);
    }
}
