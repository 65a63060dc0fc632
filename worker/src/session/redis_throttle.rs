//! Limits how much of Redis' time one worker takes.
//!
//! When thousands of pods are assigned at once, a thousand workers that each poll for the next one or two
//! keep Redis from assigning the rest. So a loop pauses for several times as long as its last round with
//! Redis took. An idle Redis answers in a fraction of a millisecond, and the pause does not matter. A busy
//! one answers late, is left alone for longer, and then returns many pods in one reply. The pause is bounded
//! by the number of nodes that share Redis, which each heartbeat reply tells.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A pause is this many times as long as the round before it.
const PAUSE_FACTOR: u32 = 8;
/// A pause is at most this long for each node: roughly the time that Redis needs to serve all of them once.
const MAX_PAUSE_PER_NODE: Duration = Duration::from_micros(100);
/// No pause is longer, however many nodes there are.
const MAX_PAUSE: Duration = Duration::from_millis(500);
/// A small command that takes this long means that Redis is busy; an idle Redis needs a fraction of it.
const BUSY_THRESHOLD: Duration = Duration::from_millis(3);

/// Computes pauses from response times and the number of nodes.
#[derive(Debug)]
pub(crate) struct RedisThrottle {
    nodes: AtomicU64,
}

impl RedisThrottle {
    pub(crate) fn new() -> Self {
        Self { nodes: AtomicU64::new(1) }
    }

    /// Sets how many nodes share Redis.
    pub(crate) fn set_nodes(&self, nodes: u64) {
        self.nodes.store(nodes, Ordering::Relaxed);
    }

    /// Returns how many nodes share Redis.
    pub(crate) fn nodes(&self) -> u64 {
        self.nodes.load(Ordering::Relaxed)
    }

    /// Returns how long to pause after a round with Redis that took `round`.
    pub(crate) fn pause_after(&self, round: Duration) -> Duration {
        let nodes = u32::try_from(self.nodes()).unwrap_or(u32::MAX);
        round.saturating_mul(PAUSE_FACTOR).min(MAX_PAUSE_PER_NODE.saturating_mul(nodes)).min(MAX_PAUSE)
    }

    /// Returns how long to pause between two halves of a round, the first of which took `first`. Zero unless
    /// Redis is busy.
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
