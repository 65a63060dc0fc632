//! Limits a rate, such as bytes through Redis, which also carries heartbeats.

use std::time::Duration;

use tokio::time::Instant;

/// Per second; all may be taken at once after a pause.
#[derive(Debug)]
pub struct TokenBucket {
    per_second: f64,
    tokens: f64,
    at: Instant,
}

impl TokenBucket {
    pub fn new(per_second: f64) -> Self {
        Self { per_second, tokens: per_second, at: Instant::now() }
    }

    /// Returns how long to wait before using the tokens.
    pub fn take(&mut self, tokens: u64, now: Instant) -> Duration {
        let earned = now.duration_since(self.at).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + earned).min(self.per_second) - tokens as f64;
        self.at = now;
        Duration::from_secs_f64((-self.tokens / self.per_second).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_may_be_sent_at_once() {
        let mut throttle = TokenBucket::new(16.0 * 1_048_576.0);
        assert_eq!(throttle.take(16 << 20, Instant::now()), Duration::ZERO);
        let wait = throttle.take(8 << 20, Instant::now());
        assert!((0.3..0.6).contains(&wait.as_secs_f64()), "{wait:?}");
    }

    #[test]
    fn after_a_burst_a_mebibyte_takes_a_second() {
        let mut throttle = TokenBucket::new(1_048_576.0);
        let started = Instant::now();
        let mut now = started;
        for _ in 0..10 * 64 {
            now += throttle.take(16 * 1024, now);
        }
        let took = now.duration_since(started).as_secs_f64();
        assert!((8.5..9.5).contains(&took), "ten mebibytes took {took} s");
    }
}
