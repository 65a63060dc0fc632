//! Limits lines that would recur with each connection or retry.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// One line in an interval for each key.
#[derive(Debug)]
pub struct LogLimit<K = ()> {
    interval: Duration,
    max_keys: usize,
    logged: Mutex<HashMap<K, LoggedLine>>,
}

#[derive(Debug)]
struct LoggedLine {
    at: Instant,
    left_out: LeftOut,
}

/// `Display` fits after a sentence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut(u64);

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, " ({} more since the last such line)", self.0) }
    }
}

impl<K> Default for LogLimit<K> {
    fn default() -> Self {
        Self { interval: Duration::from_secs(10), max_keys: usize::MAX, logged: Mutex::default() }
    }
}

impl<K: Eq + Hash> LogLimit<K> {
    /// For errors that no retry mends. Keys may be texts of errors: beyond 256 all are forgotten.
    pub fn of_retries() -> Self {
        Self { interval: Duration::from_secs(600), max_keys: 256, ..Self::default() }
    }

    pub fn admit(&self, key: K) -> bool {
        self.admit_counting(key).is_some()
    }

    /// Returns the number of suppressed lines before this one.
    pub fn admit_counting(&self, key: K) -> Option<LeftOut> {
        let mut logged = self.logged.lock();
        if let Some(last) = logged.get_mut(&key) {
            if last.at.elapsed() < self.interval {
                last.left_out.0 += 1;
                return None;
            }
            last.at = Instant::now();
            return Some(std::mem::take(&mut last.left_out));
        }
        // Forgets keys that were not logged for long.
        logged.retain(|_, last| last.at.elapsed() < self.interval * 10);
        if logged.len() >= self.max_keys {
            logged.clear();
        }
        logged.insert(key, LoggedLine { at: Instant::now(), left_out: LeftOut::default() });
        Some(LeftOut::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_reason_of_each_pod_is_logged_once_per_interval_with_what_was_left_out() {
        let rarely = LogLimit::default();
        let line = |pod: &'static str, reason: &'static str| {
            rarely.admit_counting((pod, reason)).map(|left_out: LeftOut| left_out.to_string())
        };
        assert_eq!(line("a", "refused"), Some(String::new()));
        assert!((0..5000).all(|_| line("a", "refused").is_none()));
        assert_eq!((line("b", "refused"), line("a", "silent")), (Some(String::new()), Some(String::new())));
        tokio::time::sleep(rarely.interval).await;
        assert_eq!(line("a", "refused"), Some(" (5000 more since the last such line)".to_owned()));
        tokio::time::sleep(rarely.interval * 10).await;
        assert_eq!(line("c", "refused"), Some(String::new()));
        assert_eq!(rarely.logged.lock().len(), 1, "the others are forgotten");
    }

    #[test]
    fn the_same_error_is_logged_once_and_another_one_too() {
        let log = LogLimit::of_retries();
        let due = ["a failed", "a failed", "b failed", "a failed"].map(|text| log.admit(text.to_owned()));
        assert_eq!(due, [true, false, true, false]);
        for n in 0..2 * log.max_keys {
            log.admit(n.to_string());
        }
        assert!(log.logged.lock().len() <= log.max_keys);
    }
}
