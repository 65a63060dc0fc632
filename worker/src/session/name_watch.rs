//! Decides about a worker whose name another one has: it ends if the other worker's heartbeats go on. Pure.

use std::time::Duration;

use model::node::timing::Timing;
use store::NameTaken;

use crate::fencing::fence::SAFETY_MARGIN;

/// One heartbeat may have been in flight when the worker died, or come from an older master.
const SIGNS_OF_LIFE: u32 = 2;
const MIN_WAIT: Duration = Duration::from_millis(20);
const MAX_WAIT: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct NameWatch {
    last_heartbeat: Option<String>,
    heartbeats: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameVerdict {
    Wait(Duration),
    OtherIsAlive,
}

impl NameWatch {
    pub(crate) fn is_new(&self) -> bool {
        self.last_heartbeat.is_none()
    }

    pub(crate) fn look(&mut self, taken: &NameTaken, timing: &Timing) -> NameVerdict {
        let before = self.last_heartbeat.replace(taken.last_heartbeat.clone());
        if before.is_some_and(|before| before != taken.last_heartbeat) {
            self.heartbeats += 1;
        }
        if self.heartbeats >= SIGNS_OF_LIFE {
            return NameVerdict::OtherIsAlive;
        }
        // Often enough to see every heartbeat.
        let often = (timing.heartbeat / 4).min(MAX_WAIT);
        NameVerdict::Wait(often.min(taken.left).max(MIN_WAIT))
    }
}

/// Shortly before the node is declared dead: a worker that comes back without its files is in time to keep
/// its pods.
pub(crate) fn takes_over_after(timing: &Timing) -> Duration {
    timing.fence_after.max(timing.dead_after.saturating_sub(SAFETY_MARGIN / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn looks(seen: &[(&str, u64)]) -> Vec<NameVerdict> {
        let mut watch = NameWatch::default();
        let look = |(heartbeat, left): &(&str, u64)| {
            let last_heartbeat = (*heartbeat).to_owned();
            let taken = NameTaken { since: 1, silence: Duration::ZERO, left: MS(*left), last_heartbeat };
            watch.look(&taken, &Timing::default())
        };
        seen.iter().map(look).collect()
    }

    #[test]
    fn a_second_heartbeat_shows_that_the_other_worker_is_alive() {
        let wait = NameVerdict::Wait;
        let (second, alive) = (wait(MS(1_000)), NameVerdict::OtherIsAlive);
        let table = [
            ("it beats", vec![("1", 9_000), ("2", 9_000), ("3", 9_000)], vec![second, second, alive]),
            (
                "it is silent",
                vec![("1", 9_000), ("1", 4_000), ("1", 300)],
                vec![second, second, wait(MS(300))],
            ),
            (
                "one heartbeat was on its way",
                vec![("1", 9_000), ("2", 9_000), ("2", 5)],
                vec![second, second, wait(MS(20))],
            ),
            (
                "a failover brought an old one back",
                vec![("2", 9_000), ("1", 9_000), ("1", 9_000)],
                vec![second; 3],
            ),
            (
                "without any at first",
                vec![("", 9_000), ("1", 9_000), ("2", 9_000)],
                vec![second, second, alive],
            ),
        ];
        for (name, seen, expected) in table {
            assert_eq!(looks(&seen), expected, "{name}");
        }
    }

    #[test]
    fn a_name_is_lost_between_the_fence_and_the_declared_death() {
        let after = |heartbeat, fence_after, dead_after| {
            let [heartbeat, fence_after, dead_after] = [heartbeat, fence_after, dead_after].map(MS);
            takes_over_after(&Timing { heartbeat, fence_after, dead_after })
        };
        assert_eq!(after(5_000, 15_000, 20_000), MS(19_000));
        assert_eq!(after(500, 2_000, 3_000), MS(2_000));
        assert_eq!(after(100, 2_500, 3_000), MS(2_500));
    }
}
