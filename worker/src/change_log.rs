//! Log on change: one line when something starts to fail and one when it works again, not one for each retry.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};

/// Remembers whether the last try of something failed, and logs only changes.
#[derive(Debug)]
pub(crate) struct ChangeLog {
    subject: String,
    is_failing: Mutex<bool>,
}

impl ChangeLog {
    /// `subject` begins the log lines: "… failed" and "… works again".
    pub(crate) fn new(subject: impl Into<String>) -> Self {
        Self { subject: subject.into(), is_failing: Mutex::new(false) }
    }

    /// Notes a failure; logs it unless the try before failed too.
    pub(crate) fn failed(&self, why: &dyn Display) {
        if !self.replace(true) {
            tracing::warn!("{} failed: {why}; retrying", self.subject);
        }
    }

    /// Notes a success; logs it if the try before failed.
    pub(crate) fn succeeded(&self) {
        if self.replace(false) {
            tracing::info!("{} works again", self.subject);
        }
    }

    /// Returns whether the try before failed.
    fn replace(&self, is_failing: bool) -> bool {
        let mut current = self.is_failing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *current;
        *current = is_failing;
        before
    }
}
