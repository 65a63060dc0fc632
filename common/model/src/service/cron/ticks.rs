//! Taken and due ticks of a cron.
//!
//! A tick is *taken* when its job was created, or when it was skipped for good. A clock that jumps ahead
//! leaves a gap between ranges, whose ticks are still due after the correction.

use std::collections::VecDeque;
use std::fmt;

use super::{Schedule, Zone};

/// After a time without a scheduler; earlier ones are missed.
pub const MAX_MADE_UP: usize = 100;

/// A day of one tick per second.
const MAX_OPEN: usize = 100_000;

/// Only a jumping clock exceeds it: then the gap between the oldest two counts as taken.
pub const MAX_RANGES: usize = 8;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ticks {
    /// First and last.
    ranges: Vec<(i64, i64)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    pub tick: i64,
    /// Including this one.
    pub taken: Ticks,
    /// At most [`MAX_MADE_UP`].
    pub missed: usize,
}

impl Ticks {
    pub fn last(&self) -> Option<i64> {
        self.ranges.last().map(|(_, last)| *last)
    }

    fn end_of_range(&self, at: i64) -> Option<i64> {
        self.ranges.iter().find(|(first, last)| (*first..=*last).contains(&at)).map(|(_, last)| *last)
    }

    pub fn next_after(&self, schedule: &Schedule, zone: &Zone, after: i64) -> Option<i64> {
        let mut at = after;
        loop {
            at = schedule.next_after(zone, at)?;
            match self.end_of_range(at) {
                Some(end) => at = end,
                None => return Some(at),
            }
        }
    }

    /// After `since`, at most `catch_up` seconds ago, and not taken.
    pub fn due(&self, schedule: &Schedule, zone: &Zone, since: i64, now: i64, catch_up: i64) -> Option<Due> {
        let begin = since.max(now.saturating_sub(catch_up).saturating_sub(1));
        let is_due = |tick: &i64| *tick <= now;
        let next = |at: &i64| self.next_after(schedule, zone, *at).filter(is_due);
        let mut open: VecDeque<i64> = std::iter::successors(next(&begin), next).take(MAX_OPEN).collect();
        // Ticks beyond the maximum are missed for good.
        let first = *open.front()?;
        open.drain(..open.len().saturating_sub(MAX_MADE_UP));
        let tick = *open.front()?;
        let last_before = self.ranges.iter().rev().find(|(_, last)| *last < tick).map(|(_, last)| *last);
        let missed = self.missed_before(schedule, zone, last_before.unwrap_or(since).max(since), tick);
        Some(Due { tick, taken: self.with(schedule, zone, (first, tick)), missed })
    }

    fn missed_before(&self, schedule: &Schedule, zone: &Zone, after: i64, tick: i64) -> usize {
        let mut at = after;
        let mut count = 0;
        while let Some(next) = self.next_after(schedule, zone, at).filter(|next| *next < tick) {
            at = next;
            count += 1;
            if count == MAX_MADE_UP {
                break;
            }
        }
        count
    }

    fn with(&self, schedule: &Schedule, zone: &Zone, range: (i64, i64)) -> Self {
        let mut all = self.ranges.clone();
        all.push(range);
        all.sort_unstable();
        let is_next = |last: i64, first: i64| {
            last >= first || schedule.next_after(zone, last).is_none_or(|next| next >= first)
        };
        let mut ranges: Vec<(i64, i64)> = Vec::with_capacity(all.len());
        for (first, last) in all {
            match ranges.last_mut() {
                Some(before) if is_next(before.1, first) => before.1 = before.1.max(last),
                _ => ranges.push((first, last)),
            }
        }
        while ranges.len() > MAX_RANGES {
            ranges[0].1 = ranges[1].1;
            ranges.remove(1);
        }
        Self { ranges }
    }
}

impl fmt::Display for Ticks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.ranges.iter().enumerate() {
            write!(f, "{}{first}-{last}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no list of ranges of times, such as 1700000000-1700000060")]
pub struct InvalidTicks(String);

impl std::str::FromStr for Ticks {
    type Err = InvalidTicks;

    fn from_str(text: &str) -> Result<Self, InvalidTicks> {
        let invalid = || InvalidTicks(text.to_owned());
        let mut ranges: Vec<(i64, i64)> = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').ok_or_else(invalid)?;
            let range = (first.parse().map_err(|_| invalid())?, last.parse().map_err(|_| invalid())?);
            let is_after = ranges.last().is_none_or(|(_, last)| *last < range.0);
            if range.0 > range.1 || !is_after {
                return Err(invalid());
            }
            ranges.push(range);
        }
        Ok(Self { ranges })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    struct Cron {
        schedule: Schedule,
        zone: Zone,
        taken: Ticks,
        since: i64,
        catch_up: i64,
    }

    impl Cron {
        fn new(taken: &str, since: i64, catch_up: i64) -> Self {
            let schedule = "* * * * *".parse().unwrap();
            Self { schedule, zone: Zone::default(), taken: taken.parse().unwrap(), since, catch_up }
        }

        fn due(&self, now: i64) -> Option<Due> {
            self.taken.due(&self.schedule, &self.zone, self.since, now, self.catch_up)
        }

        fn take(&mut self, now: i64) -> Vec<i64> {
            let next = || {
                let due = self.due(now)?;
                self.taken = due.taken;
                Some(due.tick)
            };
            std::iter::from_fn(next).collect()
        }
    }

    #[test]
    fn each_tick_is_due_once() {
        let mut cron = Cron::new("", 600, 600);
        assert!(cron.take(659).is_empty());
        assert_eq!(cron.take(660), [660]);
        assert!(cron.take(719).is_empty());
        assert_eq!(cron.take(840), [720, 780, 840]);
        assert_eq!(cron.taken.to_string(), "660-840");
    }

    #[test]
    fn what_is_later_than_the_catch_up_is_missed() {
        let mut cron = Cron::new("60-660", 0, 120);
        let due = cron.due(1260).unwrap();
        assert_eq!((due.tick, due.missed), (1140, 7));
        assert_eq!(cron.take(1260), [1140, 1200, 1260]);
        assert_eq!(cron.taken.to_string(), "60-660,1140-1260");
        assert_eq!(Cron::new("60-660", 0, 0).take(1260), [1260]);
        assert!(Cron::new("60-660", 0, 0).take(1261).is_empty());
    }

    #[test]
    fn no_more_than_a_hundred_are_made_up() {
        let mut cron = Cron::new("60-60", 0, 100_000);
        let taken = cron.take(60_000);
        assert_eq!((taken.len(), taken[0], taken[99]), (MAX_MADE_UP, 60_000 - 99 * 60, 60_000));
        assert_eq!(cron.taken.to_string(), "60-60000");
    }

    #[test]
    fn a_clock_that_goes_back_repeats_nothing_and_goes_on_as_soon_as_it_can() {
        let mut cron = Cron::new("", 0, 600);
        assert_eq!(cron.take(120), [60, 120]);
        // An hour ahead, and corrected again.
        assert_eq!(cron.take(3720).len(), 11);
        assert_eq!(cron.taken.to_string(), "60-120,3120-3720");
        assert_eq!(cron.take(240), [180, 240]);
        assert_eq!(cron.take(3180), (2580..=3060).step_by(60).collect::<Vec<_>>());
        assert!(cron.take(3719).is_empty());
        assert_eq!(cron.take(3780), [3780]);
        assert_eq!(cron.taken.to_string(), "60-240,2580-3780");
    }

    #[test]
    fn a_clock_that_jumps_again_and_again_leaves_no_long_list_and_repeats_nothing() {
        let mut cron = Cron::new("", 0, 60);
        let mut seen = std::collections::BTreeSet::new();
        for jump in [1, 9, 4, 7, 2, 30, 20, 25, 50, 40, 3, 5, 8, 60, 55, 70, 80, 90, 100, 6] {
            for tick in cron.take(jump * 6000) {
                assert!(seen.insert(tick), "{tick} twice");
            }
            assert!(cron.taken.ranges.len() <= MAX_RANGES);
            assert_eq!(cron.taken.to_string().parse(), Ok(cron.taken.clone()));
        }
    }

    #[test]
    fn nothing_before_the_schedule_is_due() {
        assert!(Cron::new("", 600, 6000).take(600).is_empty());
        assert_eq!(Cron::new("", 600, 6000).take(660), [660]);
    }

    #[test]
    fn what_is_no_list_of_ranges_is_refused() {
        for text in ["1", "1-", "2-1", "1-2,2-3", "a-b", "1-2;3-4"] {
            assert!(text.parse::<Ticks>().is_err(), "{text}");
        }
    }
}
