//! Exponential backoff with jitter.

use std::time::Duration;

use model::duration::delay;

const DEFAULT_MAX_WAIT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// Doubles from `first` up to `max`, or stays at `first` if that is longer.
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, failures: 0 }
    }

    /// Up to five seconds.
    pub const fn starting_at(first: Duration) -> Self {
        Self::new(first, DEFAULT_MAX_WAIT)
    }

    /// Counts a failure. Without jitter, for a wait that a message tells.
    pub fn next_exact(&mut self) -> Duration {
        let wait = delay(self.first, self.max, self.failures);
        self.failures = self.failures.saturating_add(1);
        wait
    }

    /// With jitter.
    #[expect(clippy::should_implement_trait, reason = "it never ends, and a loop over it would not wait")]
    pub fn next(&mut self) -> Duration {
        jittered(self.next_exact())
    }

    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// In the upper half of `wait`: processes do not retry in step.
pub fn jittered(wait: Duration) -> Duration {
    with_jitter(wait, rand::random())
}

fn with_jitter(wait: Duration, random: f64) -> Duration {
    wait.mul_f64(0.5 + random / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_maximum_and_starts_over_after_a_reset() {
        let seconds = Duration::from_secs;
        let mut backoff = Backoff::new(seconds(10), seconds(300));
        let waits: Vec<u64> = (0..8).map(|_| backoff.next_exact().as_secs()).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300]);
        backoff.reset();
        assert_eq!(backoff.next_exact(), seconds(10));
    }

    #[test]
    fn any_number_of_failures_does_not_overflow() {
        for failures in [30, 31, 32, u32::MAX] {
            assert_eq!(delay(Duration::MAX, Duration::MAX, failures), Duration::MAX);
            assert_eq!(delay(Duration::from_secs(1), Duration::from_secs(5), failures).as_secs(), 5);
        }
        assert_eq!(delay(Duration::from_secs(9), Duration::from_secs(5), 3).as_secs(), 9);
    }

    #[test]
    fn jitter_stays_in_the_upper_half() {
        for _ in 0..100 {
            let wait = jittered(Duration::from_secs(10));
            assert!((5.0..=10.0).contains(&wait.as_secs_f64()), "{wait:?}");
        }
    }

    #[test]
    fn jitter_keeps_the_wait_within_its_bounds() {
        let first = Duration::from_millis(50);
        let wait = |failures, random| with_jitter(delay(first, DEFAULT_MAX_WAIT, failures), random);
        assert_eq!(wait(0, 1.0), first);
        assert_eq!(wait(0, 0.0), first / 2);
        assert_eq!(wait(1, 1.0), first * 2);
        for failures in [7, 16, 17, u32::MAX] {
            assert_eq!(wait(failures, 1.0), DEFAULT_MAX_WAIT);
            assert_eq!(wait(failures, 0.0), DEFAULT_MAX_WAIT / 2);
        }
    }

    #[test]
    fn jittered_waits_start_over_after_a_reset() {
        let first = Duration::from_millis(50);
        let mut backoff = Backoff::starting_at(first);
        for _ in 0..20 {
            backoff.next();
        }
        assert!(backoff.next() >= DEFAULT_MAX_WAIT / 2);
        backoff.reset();
        assert!(backoff.next() <= first);
    }

    #[test]
    fn waits_never_shrink_and_end_at_five_seconds() {
        let first = Duration::from_millis(100);
        let wait = |failures, random| with_jitter(delay(first, DEFAULT_MAX_WAIT, failures), random);
        for failures in 0..100 {
            for random in [0.0, 0.5, 0.999] {
                let wait = wait(failures, random);
                assert!(wait >= first / 2 && wait <= DEFAULT_MAX_WAIT, "{failures} {wait:?}");
            }
            assert!(wait(failures + 1, 0.5) >= wait(failures, 0.5));
        }
        assert_eq!(wait(100, 1.0), DEFAULT_MAX_WAIT);
    }
}
