//! Limits the bandwidth of a session, since Redis also carries heartbeats.

use std::time::{Duration, Instant};

/// Bytes per second of one side, and the burst after a pause.
const BYTES_PER_SECOND: f64 = 16.0 * 1_048_576.0;

pub(super) struct Throttle {
    tokens: f64,
    at: Instant,
}

impl Throttle {
    pub(super) fn new() -> Self {
        Self { tokens: BYTES_PER_SECOND, at: Instant::now() }
    }

    /// Takes tokens for these bytes. Returns the time to wait before they are sent.
    pub(super) fn take(&mut self, bytes: u64) -> Duration {
        let now = Instant::now();
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
    fn a_second_may_be_sent_at_once() {
        let mut throttle = Throttle::new();
        assert_eq!(throttle.take(16 << 20), Duration::ZERO);
        let wait = throttle.take(8 << 20);
        assert!((0.3..0.6).contains(&wait.as_secs_f64()), "{wait:?}");
    }
}
