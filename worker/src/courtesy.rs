//! How much of Redis a worker takes for itself.
//!
//! When thousands of pods are given out at once, a thousand workers that each ask again and again for the next one or two
//! keep Redis from giving out the rest. So a loop pauses for several times as long as its last round with Redis took: an
//! idle Redis answers in a fraction of a millisecond, and nobody notices; a busy one answers late, is left alone for
//! longer, and then gives many pods for the price of one.

use std::time::Duration;

/// A pause is never longer, however slow Redis is.
const LONGEST: Duration = Duration::from_millis(250);
/// A round is followed by a pause of so many times its length.
const TIMES: u32 = 8;

/// How long to wait after a round with Redis that took so long.
pub(crate) fn pause_after(round: Duration) -> Duration {
    (round * TIMES).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_follow_redis_and_have_an_end() {
        assert_eq!(pause_after(Duration::from_micros(200)), Duration::from_micros(1_600));
        assert_eq!(pause_after(Duration::from_millis(10)), Duration::from_millis(80));
        assert_eq!(pause_after(Duration::from_secs(9)), LONGEST);
    }
}
