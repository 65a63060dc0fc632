//! Limits one worker's share of Redis' time.
//!
//! When thousands of pods are assigned at once, a thousand workers polling for the next one or two keep Redis
//! from assigning the rest. So a loop pauses several times as long as its last round took; a busy Redis is
//! left alone, and then returns many pods in one reply.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const PAUSE_FACTOR: u32 = 8;
/// The time that Redis needs to serve all nodes once.
const MAX_PAUSE_PER_NODE: Duration = Duration::from_micros(100);
const MAX_PAUSE: Duration = Duration::from_millis(500);
/// An idle Redis needs a fraction of it for a small command.
const BUSY_THRESHOLD: Duration = Duration::from_millis(3);

#[derive(Debug)]
pub(crate) struct RedisThrottle {
    nodes: AtomicU64,
}

impl RedisThrottle {
    pub(crate) fn new() -> Self {
        Self { nodes: AtomicU64::new(1) }
    }

    pub(crate) fn set_nodes(&self, nodes: u64) {
        self.nodes.store(nodes, Ordering::Relaxed);
    }

    pub(crate) fn nodes(&self) -> u64 {
        self.nodes.load(Ordering::Relaxed)
    }

    pub(crate) fn pause_after(&self, round: Duration) -> Duration {
        let nodes = u32::try_from(self.nodes()).unwrap_or(u32::MAX);
        round.saturating_mul(PAUSE_FACTOR).min(MAX_PAUSE_PER_NODE.saturating_mul(nodes)).min(MAX_PAUSE)
    }

    pub(crate) fn pause_between(&self, first: Duration) -> Duration {
        if first < BUSY_THRESHOLD { Duration::ZERO } else { self.pause_after(first) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_follow_redis_and_the_number_of_nodes() {
        let throttle = RedisThrottle::new();
        let micros =
            |throttle: &RedisThrottle, round| throttle.pause_after(Duration::from_micros(round)).as_micros();
        assert_eq!(micros(&throttle, 200), 100);
        throttle.set_nodes(1_000);
        assert_eq!(micros(&throttle, 200), 1_600);
        assert_eq!(micros(&throttle, 10_000), 80_000);
        assert_eq!(micros(&throttle, 9_000_000), 100_000);
        throttle.set_nodes(u64::MAX);
        assert_eq!(micros(&throttle, 9_000_000), 500_000);
        assert_eq!(throttle.pause_between(Duration::from_millis(1)), Duration::ZERO);
        assert_eq!(throttle.pause_between(Duration::from_millis(5)), Duration::from_millis(40));
    }
}
