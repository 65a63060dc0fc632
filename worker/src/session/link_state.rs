//! A session's view of its link to Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use daemon::clock::{BootInstant, Clock};
use model::RedisMillis;
use parking_lot::Mutex;

use crate::support::timings::WorkerTimings;

pub(crate) struct LinkState {
    clock: Arc<dyn Clock>,
    fence_after: Duration,
    /// In milliseconds on the boot clock.
    in_touch_until: AtomicU64,
    masters: Mutex<Masters>,
}

#[derive(Default)]
struct Masters {
    current: Option<RedisMillis>,
    /// For every pod here that must not run twice.
    confirmed_by: Option<RedisMillis>,
    is_doubted: bool,
    answered_at: Option<BootInstant>,
    /// The last answer of the former master, and the first of the current one.
    changed: Option<(BootInstant, BootInstant)>,
}

impl LinkState {
    pub(crate) fn new(clock: Arc<dyn Clock>, fence_after: Duration) -> Self {
        let link = Self { clock, fence_after, in_touch_until: AtomicU64::new(0), masters: Mutex::default() };
        link.note_answer();
        link
    }

    pub(crate) fn note_answer(&self) {
        let until = self.clock.now().plus(self.fence_after);
        self.in_touch_until.store(until.millis, Ordering::Release);
    }

    pub(crate) fn is_in_touch(&self) -> bool {
        self.clock.now().millis < self.in_touch_until.load(Ordering::Acquire)
    }

    pub(crate) fn note_master(&self, changed_at: RedisMillis) -> bool {
        let now = self.clock.now();
        let mut masters = self.masters.lock();
        let is_other = masters.current.replace(changed_at).is_some_and(|before| before != changed_at);
        masters.is_doubted |= is_other;
        let before = masters.answered_at.replace(now);
        if let Some(before) = before.filter(|_| is_other) {
            masters.changed = Some((before, now));
        }
        is_other
    }

    /// A failover may have lost the records of pods started since this time: a moment before the former
    /// master's last answer.
    pub(crate) fn doubtful_since(&self, timings: &WorkerTimings) -> BootInstant {
        let now = self.clock.now();
        let changed = self.masters.lock().changed;
        let lately = changed.filter(|(_, changed)| now.since(*changed) < timings.failover_memory);
        let since = lately.map_or(now, |(before, _)| before);
        BootInstant { millis: since.millis.saturating_sub(timings.record_lag.as_millis() as u64) }
    }

    /// `now` is a time of Redis.
    pub(crate) fn doubtful_time(&self, now: RedisMillis, timings: &WorkerTimings) -> RedisMillis {
        let lately = now.saturating_sub(timings.failover_memory.as_millis() as RedisMillis);
        let since = self.master().filter(|changed| *changed >= lately).unwrap_or(now);
        since.saturating_sub(timings.record_lag.as_millis() as RedisMillis)
    }

    pub(crate) fn doubt(&self) {
        self.masters.lock().is_doubted = true;
    }

    pub(crate) fn take_doubt(&self) -> bool {
        std::mem::take(&mut self.masters.lock().is_doubted)
    }

    pub(crate) fn master(&self) -> Option<RedisMillis> {
        self.masters.lock().current
    }

    pub(crate) fn set_confirmed_by(&self, master: Option<RedisMillis>) {
        self.masters.lock().confirmed_by = master;
    }

    /// Another master may have lost the assignments, and may assign the pods elsewhere.
    pub(crate) fn is_confirmed_by(&self, changed_at: RedisMillis) -> bool {
        self.masters.lock().confirmed_by == Some(changed_at)
    }

    pub(crate) fn is_confirmed(&self) -> bool {
        let masters = self.masters.lock();
        masters.current.is_some() && masters.current == masters.confirmed_by
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct SetClock(AtomicU64);

    impl Clock for SetClock {
        fn now(&self) -> BootInstant {
            BootInstant { millis: self.0.load(Ordering::Relaxed) }
        }
    }

    #[test]
    fn a_record_may_be_lost_that_was_written_a_moment_ago_or_before_the_master_changed() {
        let clock = Arc::new(SetClock::default());
        let link = LinkState::new(clock.clone(), Duration::from_secs(15));
        let at = |seconds: u64, master: Option<RedisMillis>| {
            clock.0.store(seconds * 1000, Ordering::Relaxed);
            master.map(|master| link.note_master(master));
            link.doubtful_since(&WorkerTimings::default()).millis / 1000
        };
        for (seconds, master, expected) in [
            (100, Some(1), 90),
            (200, Some(1), 190),
            (230, Some(2), 190),
            (289, None, 190),
            (290, Some(2), 280),
            (300, Some(3), 280),
            (310, Some(3), 280),
        ] {
            assert_eq!(at(seconds, master), expected, "at {seconds}");
        }
    }
}
