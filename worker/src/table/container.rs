//! One container of a managed pod: what this worker counts about it, and how it is doing.

use common::clock::BootInstant;
use common::pod::ContainerProgress;

/// The reason of a container that was started again after an exit, until it has run for a while.
pub(crate) const RESTARTED: &str = "Restarted";

/// What this worker knows of one container of a pod. What it is to be is in the pod's specification.
#[derive(Debug, Clone, Default)]
pub(crate) struct ManagedContainer {
    /// The engine's handle, as far as it is known.
    pub(crate) handle: Option<String>,
    /// Whether it was started and has ended, as the engine told last.
    pub(crate) progress: ContainerProgress,
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

    /// Takes over what an earlier session counted: restarts, and the exit code of the last run.
    pub(crate) fn recover(
        &mut self,
        now: BootInstant,
        (restarts, exit_code): (u32, Option<i64>),
        is_unwell: bool,
        message: &str,
    ) {
        self.restarts = restarts;
        if is_unwell {
            // It was not well when this worker's predecessor ended: it has to run for a while to be well again.
            self.running_since = Some(now);
            self.exit_code = exit_code;
            self.set_reason(RESTARTED, message.to_owned());
        }
    }

    /// Changes how it is doing.
    pub(crate) fn set_reason(&mut self, reason: &'static str, message: String) {
        (self.reason, self.message) = (reason, message);
    }
}
