//! Rate limits for warnings that may occur with each connection.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

const INTERVAL: Duration = Duration::from_secs(10);

/// Limits a warning to one every 10 s.
#[derive(Debug, Default)]
pub struct Rarely {
    told: Mutex<Option<Instant>>,
}

impl Rarely {
    /// Returns true if the warning may be logged now.
    pub fn is_due(&self) -> bool {
        let mut told = self.told.lock();
        let is_due = told.is_none_or(|at| at.elapsed() >= INTERVAL);
        if is_due {
            *told = Some(Instant::now());
        }
        is_due
    }
}

/// As [`Rarely`], for each key.
#[derive(Debug)]
pub struct RarelyEach<K> {
    logged: Mutex<HashMap<K, LoggedLine>>,
}

#[derive(Debug)]
struct LoggedLine {
    at: Instant,
    left_out: LeftOut,
}

/// Number of suppressed lines since the last one. Its `Display` fits after a sentence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut(u64);

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, " ({} more since the last such line)", self.0) }
    }
}

impl<K> Default for RarelyEach<K> {
    fn default() -> Self {
        Self { logged: Mutex::default() }
    }
}

impl<K: Eq + Hash> RarelyEach<K> {
    /// Returns the number of suppressed lines if this one may be logged now.
    pub fn due(&self, key: K) -> Option<LeftOut> {
        let mut logged = self.logged.lock();
        if let Some(last) = logged.get_mut(&key) {
            if last.at.elapsed() < INTERVAL {
                last.left_out.0 += 1;
                return None;
            }
            last.at = Instant::now();
            return Some(std::mem::take(&mut last.left_out));
        }
        // Forgets keys that were not logged for long.
        logged.retain(|_, last| last.at.elapsed() < INTERVAL * 10);
        logged.insert(key, LoggedLine { at: Instant::now(), left_out: LeftOut::default() });
        Some(LeftOut::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_reason_of_each_pod_is_logged_once_per_interval_with_what_was_left_out() {
        let rarely = RarelyEach::default();
        let line = |pod: &'static str, reason: &'static str| {
            rarely.due((pod, reason)).map(|left_out: LeftOut| left_out.to_string())
        };
        assert_eq!(line("a", "refused"), Some(String::new()));
        assert!((0..5000).all(|_| line("a", "refused").is_none()));
        assert_eq!((line("b", "refused"), line("a", "silent")), (Some(String::new()), Some(String::new())));
        tokio::time::sleep(INTERVAL).await;
        assert_eq!(line("a", "refused"), Some(" (5000 more since the last such line)".to_owned()));
        tokio::time::sleep(INTERVAL * 10).await;
        assert_eq!(line("c", "refused"), Some(String::new()));
        assert_eq!(rarely.logged.lock().len(), 1, "the others are forgotten");
    }
}
