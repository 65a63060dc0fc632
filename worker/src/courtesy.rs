//! How much of Redis a worker takes for itself.
//!
//! When thousands of pods are given out at once, a thousand workers that each ask again and again for the next one or two
//! keep Redis from giving out the rest. So a loop pauses for several times as long as its last round with Redis took: an
//! idle Redis answers in a fraction of a millisecond, and nobody notices; a busy one answers late, is left alone for
//! longer, and then gives many pods for the price of one. A worker that shares Redis with few others need not wait long:
//! heartbeats are told how many there are.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A round is followed by a pause of so many times its length,
const TIMES: u32 = 8;
/// but never longer than it takes to serve every node once,
const OTHERS: Duration = Duration::from_micros(100);
/// however many they are.
const LONGEST: Duration = Duration::from_millis(500);
/// One small question takes an idle Redis a fraction of this.
const BUSY: Duration = Duration::from_millis(3);

/// What one worker knows of the others.
#[derive(Debug)]
pub(crate) struct Courtesy {
    nodes: AtomicU64,
}

impl Courtesy {
    pub(crate) fn new() -> Self {
        Self { nodes: AtomicU64::new(1) }
    }

    /// So many nodes share Redis.
    pub(crate) fn hears_of(&self, nodes: u64) {
        self.nodes.store(nodes, Ordering::Relaxed);
    }

    /// How many nodes share Redis.
    pub(crate) fn nodes(&self) -> u64 {
        self.nodes.load(Ordering::Relaxed)
    }

    /// How long to wait after a round with Redis that took so long.
    pub(crate) fn pause_after(&self, round: Duration) -> Duration {
        let nodes = u32::try_from(self.nodes()).unwrap_or(u32::MAX);
        round.saturating_mul(TIMES).min(OTHERS.saturating_mul(nodes)).min(LONGEST)
    }

    /// How long to wait between two halves of a round, the first of which took so long: not at all unless Redis is busy.
    pub(crate) fn pause_between(&self, first: Duration) -> Duration {
        if first < BUSY { Duration::ZERO } else { self.pause_after(first) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_follow_redis_and_the_number_of_nodes() {
        let courtesy = Courtesy::new();
        let micros =
            |courtesy: &Courtesy, round| courtesy.pause_after(Duration::from_micros(round)).as_micros();
        assert_eq!(micros(&courtesy, 200), 100);
        courtesy.hears_of(1_000);
        assert_eq!(micros(&courtesy, 200), 1_600);
        assert_eq!(micros(&courtesy, 10_000), 80_000);
        assert_eq!(micros(&courtesy, 9_000_000), 100_000);
        courtesy.hears_of(u64::MAX);
        assert_eq!(micros(&courtesy, 9_000_000), 500_000);
        assert_eq!(courtesy.pause_between(Duration::from_millis(1)), Duration::ZERO);
        assert_eq!(courtesy.pause_between(Duration::from_millis(5)), Duration::from_millis(40));
    }
}
