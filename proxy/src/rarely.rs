//! Warnings of what may happen with each connection are told once in a while.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The shortest time between two of them.
const INTERVAL: Duration = Duration::from_secs(10);

/// When something was told last.
#[derive(Debug, Default)]
pub(crate) struct Rarely {
    told: Mutex<Option<Instant>>,
}

impl Rarely {
    /// Returns whether it is to be told now.
    pub(crate) fn is_due(&self) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = told.is_none_or(|at| at.elapsed() >= INTERVAL);
        if is_due {
            *told = Some(Instant::now());
        }
        is_due
    }
}
