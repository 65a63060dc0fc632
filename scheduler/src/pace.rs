//! How fast the loops go. One setting, `KUBELEET_DEAD_AFTER`, sets the pace: whoever wants silence noticed sooner
//! wants everything that follows from it sooner too. The figures in the comments are those for its default, 20 s.

use std::time::Duration;

use common::config::Timing;

/// The periods of all loops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pace {
    /// How long the wait for a pod blocks: the place loop gives a sign of life at least so often. 2 s.
    pub(crate) block: Duration,
    /// A node that was silent for longer is dead. 20 s.
    pub(crate) dead_after: Duration,
    /// Looks for silent nodes so often. 1 s.
    pub(crate) death_tick: Duration,
    /// No declarations for so long after a change of the Redis master: workers have to find it first. 30 s.
    pub(crate) master_pause: Duration,
    /// Least time between two declarations, cluster-wide. 2 s.
    pub(crate) death_gap: Duration,
    /// Looks for payloads on dead nodes so often; after a declaration at once. 5 s.
    pub(crate) drain_tick: Duration,
    /// Looks for silent schedulers so often. 5 s.
    pub(crate) orphan_tick: Duration,
    /// A scheduler that was silent for longer has its hands emptied. 20 s.
    pub(crate) orphan_after: Duration,
    /// Everything is reconciled so often. 30 s.
    pub(crate) full_pass: Duration,
    /// A pod that has not changed for longer may have lost its payload. 30 s.
    pub(crate) suspicious_after: Duration,
    /// One page of the walk for guests so often. 500 ms.
    pub(crate) scan_tick: Duration,
    /// Looks at the guests it knows so often, and waits so long between two walks. 2 s.
    pub(crate) guest_tick: Duration,
}

impl Pace {
    /// The pace that goes with these timings.
    pub(crate) fn of(timing: &Timing) -> Self {
        let dead = timing.dead_after;
        let block = Duration::from_secs(2);
        Self {
            block,
            dead_after: dead,
            death_tick: (dead / 10).clamp(ms(50), ms(1_000)),
            master_pause: (dead * 3 / 2).min(ms(30_000)),
            death_gap: (dead / 10).min(ms(2_000)),
            drain_tick: (dead / 4).clamp(ms(100), ms(5_000)),
            orphan_tick: (dead / 4).clamp(ms(100), ms(5_000)),
            // Several signs of life have to be missing.
            orphan_after: dead.clamp(block * 3, ms(20_000)),
            full_pass: (dead * 3 / 2).clamp(ms(1_000), ms(30_000)),
            suspicious_after: (dead * 3 / 2).clamp(ms(1_000), ms(30_000)),
            scan_tick: ms(500),
            guest_tick: (dead / 10).clamp(ms(100), ms(2_000)),
        }
    }
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_what_the_comments_say() {
        let pace = Pace::of(&Timing::default());
        let seconds = [
            (pace.death_tick, 1),
            (pace.master_pause, 30),
            (pace.death_gap, 2),
            (pace.drain_tick, 5),
            (pace.orphan_tick, 5),
            (pace.orphan_after, 20),
            (pace.full_pass, 30),
            (pace.suspicious_after, 30),
            (pace.guest_tick, 2),
        ];
        for (period, expected) in seconds {
            assert_eq!(period, Duration::from_secs(expected));
        }
    }

    #[test]
    fn long_patience_makes_no_loop_slow() {
        let timing = Timing { dead_after: Duration::from_secs(600), ..Timing::default() };
        let patient = Pace { dead_after: Timing::default().dead_after, ..Pace::of(&timing) };
        assert_eq!(patient, Pace::of(&Timing::default()));
    }
}
