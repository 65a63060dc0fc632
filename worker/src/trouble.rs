//! One log line for each change between well and not well, instead of one for each failed try.

use std::sync::Mutex;
use std::sync::PoisonError;

/// Whether something failed when it was tried last.
#[derive(Debug)]
pub(crate) struct Trouble {
    what: String,
    failing: Mutex<bool>,
}

impl Trouble {
    /// `what` in words that go on with "does not work" and "works again".
    pub(crate) fn of(what: impl Into<String>) -> Self {
        Self { what: what.into(), failing: Mutex::new(false) }
    }

    /// It failed. Says so unless it failed before.
    pub(crate) fn failed(&self, why: &dyn std::fmt::Display) {
        if !self.set(true) {
            tracing::warn!("{} does not work: {why}; trying on", self.what);
        }
    }

    /// It worked. Says so if it failed before.
    pub(crate) fn worked(&self) {
        if self.set(false) {
            tracing::info!("{} works again", self.what);
        }
    }

    fn set(&self, failing: bool) -> bool {
        std::mem::replace(&mut *self.failing.lock().unwrap_or_else(PoisonError::into_inner), failing)
    }
}
