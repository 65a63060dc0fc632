//! Throttles log readers, because Redis and its replicas carry heartbeats too.

use std::time::Duration;

use model::ids::NodeName;
use tokio::time::Instant;

/// Maximum number of concurrent log requests of a node. They share its write rate.
pub(crate) const MAX_READERS: usize = 128;
/// Rate of one answer in bytes per second, and its burst in bytes.
const BYTES_PER_SECOND: f64 = 1_048_576.0;
const BYTES_PER_SECOND_OF_ALL: f64 = 4.0 * BYTES_PER_SECOND;

pub(crate) fn too_many_readers(node: &NodeName) -> String {
    format!("{node} answers {MAX_READERS} log requests already; try again when one of them has ended")
}

pub(crate) struct LogThrottle {
    bytes_per_second: f64,
    tokens: f64,
    at: Instant,
}

impl LogThrottle {
    pub(crate) fn of_one() -> Self {
        Self::new(BYTES_PER_SECOND)
    }

    pub(crate) fn of_all() -> Self {
        Self::new(BYTES_PER_SECOND_OF_ALL)
    }

    fn new(bytes_per_second: f64) -> Self {
        Self { bytes_per_second, tokens: bytes_per_second, at: Instant::now() }
    }

    pub(crate) fn take(&mut self, bytes: usize, now: Instant) -> Duration {
        let rate = self.bytes_per_second;
        let earned = now.duration_since(self.at).as_secs_f64() * rate;
        self.tokens = (self.tokens + earned).min(rate) - bytes as f64;
        self.at = now;
        Duration::from_secs_f64((-self.tokens / rate).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_burst_a_mebibyte_takes_a_second() {
        let mut throttle = LogThrottle::of_one();
        let started = Instant::now();
        let mut now = started;
        for _ in 0..10 * 64 {
            now += throttle.take(16 * 1024, now);
        }
        let took = now.duration_since(started).as_secs_f64();
        assert!((8.5..9.5).contains(&took), "ten mebibytes took {took} s");
    }
}
