//! Keeps a log reader from harming anybody: Redis and its replicas carry heartbeats too.

use std::time::Duration;

use tokio::time::Instant;

/// How many log requests a node answers at a time.
pub(crate) const MAX_READERS: usize = 4;
/// How many bytes a second one answer may have, and how many at once after a pause.
const BYTES_PER_SECOND: f64 = 1_048_576.0;

/// A token bucket for the bytes of one answer.
pub(crate) struct LogThrottle {
    tokens: f64,
    at: Instant,
}

impl LogThrottle {
    pub(crate) fn new() -> Self {
        Self { tokens: BYTES_PER_SECOND, at: Instant::now() }
    }

    /// Takes tokens for this number of bytes. Returns how long to wait before they are sent.
    pub(crate) fn take(&mut self, bytes: usize, now: Instant) -> Duration {
        let earned = now.duration_since(self.at).as_secs_f64() * BYTES_PER_SECOND;
        self.tokens = (self.tokens + earned).min(BYTES_PER_SECOND) - bytes as f64;
        self.at = now;
        Duration::from_secs_f64((-self.tokens / BYTES_PER_SECOND).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_burst_a_mebibyte_takes_a_second() {
        let mut throttle = LogThrottle::new();
        let started = Instant::now();
        let mut now = started;
        for _ in 0..10 * 64 {
            now += throttle.take(16 * 1024, now);
        }
        let took = now.duration_since(started).as_secs_f64();
        assert!((8.5..9.5).contains(&took), "ten mebibytes took {took} s");
    }
}
