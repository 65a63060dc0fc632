//! How long to wait before the next try: doubling, bounded, and never in step with a thousand other processes.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(5);

/// Counts the tries that failed in a row.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Things went well: the next wait is a short one again.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// The wait before the next try.
    pub(super) fn next(&mut self) -> Duration {
        let wait = delay(self.failures, rand::random::<f64>());
        self.failures = self.failures.saturating_add(1);
        wait
    }
}

/// `random` in 0..1 spreads the wait over the upper half of its range.
fn delay(failures: u32, random: f64) -> Duration {
    let full = FIRST.saturating_mul(1 << failures.min(16)).min(LONGEST);
    full.mul_f64(0.5 + random / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_within_its_bounds() {
        assert_eq!(delay(0, 1.0), FIRST);
        assert_eq!(delay(0, 0.0), FIRST / 2);
        assert_eq!(delay(1, 1.0), FIRST * 2);
        for failures in [7, 16, 17, u32::MAX] {
            assert_eq!(delay(failures, 1.0), LONGEST);
            assert_eq!(delay(failures, 0.0), LONGEST / 2);
        }
    }

    #[test]
    fn starts_over_after_a_reset() {
        let mut backoff = Backoff::default();
        for _ in 0..20 {
            backoff.next();
        }
        assert!(backoff.next() >= LONGEST / 2);
        backoff.reset();
        assert!(backoff.next() <= FIRST);
    }
}
