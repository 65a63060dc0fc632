//! Logs recurring errors that retries cannot fix once and then rarely.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

const INTERVAL: Duration = Duration::from_secs(600);
/// Maximum number of remembered texts. Beyond it all are forgotten, and logged again.
const MAX_TEXTS: usize = 256;

#[derive(Default)]
pub(crate) struct RareLog {
    logged: Mutex<HashMap<String, Instant>>,
}

impl RareLog {
    pub(crate) fn is_due(&self, text: &str) -> bool {
        let mut logged = self.logged.lock();
        if logged.get(text).is_some_and(|at| at.elapsed() < INTERVAL) {
            return false;
        }
        if logged.len() >= MAX_TEXTS {
            logged.clear();
        }
        logged.insert(text.to_owned(), Instant::now());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_error_is_logged_once_and_another_one_too() {
        let log = RareLog::default();
        let due = ["a failed", "a failed", "b failed", "a failed"].map(|text| log.is_due(text));
        assert_eq!(due, [true, false, true, false]);
        for n in 0..2 * MAX_TEXTS {
            log.is_due(&n.to_string());
        }
        assert!(log.logged.lock().len() <= MAX_TEXTS);
    }
}
