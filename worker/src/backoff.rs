//! How long to wait before the next try. Pure, but for [`jittered`].

use std::time::Duration;

/// Counts tries that failed in a row, and says how long to wait after each.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    most: Duration,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, failures: 0 }
    }

    /// The wait before the next try; each longer than the one before.
    pub(crate) fn next(&mut self) -> Duration {
        let wait = delay(self.first, self.most, self.failures);
        self.failures = self.failures.saturating_add(1);
        wait
    }

    /// Things went well: the next wait is the first one again.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// `first`, doubled for each failure before, and never more than `most` (or `first`, where that is more).
pub(crate) fn delay(first: Duration, most: Duration, failures: u32) -> Duration {
    first.saturating_mul(1 << failures.min(30)).min(most.max(first))
}

/// Somewhere in the upper half of `wait`, so that a thousand workers do not come back in step.
pub(crate) fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(0.5 + rand::random::<f64>() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_most_and_starts_over() {
        let seconds = Duration::from_secs;
        let mut backoff = Backoff::new(seconds(10), seconds(300));
        let waits: Vec<u64> = (0..8).map(|_| backoff.next().as_secs()).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300]);
        backoff.reset();
        assert_eq!(backoff.next(), seconds(10));
    }

    #[test]
    fn no_number_of_failures_overflows() {
        for failures in [30, 31, 32, u32::MAX] {
            assert_eq!(delay(Duration::MAX, Duration::MAX, failures), Duration::MAX);
            assert_eq!(delay(Duration::from_secs(1), Duration::from_secs(5), failures).as_secs(), 5);
        }
        // A first wait that somebody set longer than the longest is kept.
        assert_eq!(delay(Duration::from_secs(9), Duration::from_secs(5), 3).as_secs(), 9);
    }

    #[test]
    fn jitter_stays_in_the_upper_half() {
        for _ in 0..100 {
            let wait = jittered(Duration::from_secs(10));
            assert!((5.0..=10.0).contains(&wait.as_secs_f64()), "{wait:?}");
        }
    }
}
