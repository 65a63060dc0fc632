//! Merges logs of several sources in order of time. Pure.
//!
//! A line is passed on when each source has a line waiting, or has ended. A followed source may be quiet
//! forever, so lines wait only for a while; later ones are late rather than missing.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct LogMerge<K, T> {
    sources: BTreeMap<K, MergeSource<T>>,
    /// How long a line waits for sources without one.
    hold: Option<Duration>,
}

#[derive(Debug)]
struct MergeSource<T> {
    waiting: VecDeque<WaitingLine<T>>,
    ended: bool,
}

#[derive(Debug)]
struct WaitingLine<T> {
    time: u64,
    arrived: Instant,
    line: T,
}

impl<K: Ord + Clone, T> LogMerge<K, T> {
    pub fn new(hold: Option<Duration>) -> Self {
        Self { sources: BTreeMap::new(), hold }
    }

    /// An ended source begins again.
    pub fn begin(&mut self, source: K) {
        self.sources
            .entry(source)
            .and_modify(|source| source.ended = false)
            .or_insert(MergeSource { waiting: VecDeque::new(), ended: false });
    }

    pub fn push(&mut self, source: &K, time: u64, line: T, arrived: Instant) {
        if let Some(source) = self.sources.get_mut(source) {
            source.waiting.push_back(WaitingLine { time, arrived, line });
        }
    }

    pub fn end(&mut self, source: &K) {
        if let Some(source) = self.sources.get_mut(source) {
            source.ended = true;
        }
    }

    /// The oldest line that need not wait; of equal ones that of the first source.
    pub fn pop(&mut self, now: Instant) -> Option<T> {
        self.sources.retain(|_, source| !source.ended || !source.waiting.is_empty());
        let (key, first) = self.oldest()?;
        let is_due = self.hold.is_some_and(|hold| now >= first.arrived + hold);
        let is_first = self.sources.values().all(|source| !source.waiting.is_empty());
        if !is_due && !is_first {
            return None;
        }
        let key = key.clone();
        self.sources.get_mut(&key)?.waiting.pop_front().map(|waiting| waiting.line)
    }

    pub fn due_at(&self) -> Option<Instant> {
        let (_, first) = self.oldest()?;
        Some(first.arrived + self.hold?)
    }

    pub fn waiting(&self, source: &K) -> usize {
        self.sources.get(source).map_or(0, |source| source.waiting.len())
    }

    pub fn is_done(&self) -> bool {
        self.sources.values().all(|source| source.ended && source.waiting.is_empty())
    }

    fn oldest(&self) -> Option<(&K, &WaitingLine<T>)> {
        let heads = self.sources.iter().filter_map(|(key, source)| Some((key, source.waiting.front()?)));
        heads.min_by_key(|(_, waiting)| waiting.time)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use proptest::prelude::*;

    use super::*;

    fn all(merge: &mut LogMerge<u32, String>, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| merge.pop(now)).collect()
    }

    #[test]
    fn a_line_waits_until_no_source_can_have_an_older_one() {
        let now = Instant::now();
        let mut merge = LogMerge::new(None);
        merge.begin(1);
        merge.begin(2);
        for (time, line) in [(10, "a"), (30, "c"), (31, "d")] {
            merge.push(&1, time, line.to_owned(), now);
        }
        assert_eq!(all(&mut merge, now + Duration::from_secs(60)), [""; 0], "the other has told nothing");
        merge.push(&2, 20, "b".to_owned(), now);
        assert_eq!(all(&mut merge, now), ["a", "b"]);
        merge.end(&2);
        assert_eq!(all(&mut merge, now), ["c", "d"]);
        assert!(!merge.is_done());
        merge.end(&1);
        assert!(merge.is_done() && merge.pop(now).is_none());
    }

    #[test]
    fn while_following_a_quiet_source_holds_the_others_up_for_a_while_only() {
        let (now, hold) = (Instant::now(), Duration::from_millis(300));
        let mut merge = LogMerge::new(Some(hold));
        merge.begin(1);
        merge.begin(2);
        merge.push(&1, 20, "late".to_owned(), now);
        assert_eq!(all(&mut merge, now), [""; 0]);
        assert_eq!(merge.due_at(), Some(now + hold));
        merge.push(&2, 10, "early".to_owned(), now + hold / 2);
        assert_eq!(all(&mut merge, now + hold / 2), ["early"], "the second source is empty again");
        assert_eq!(all(&mut merge, now + hold), ["late"]);
        merge.push(&2, 5, "too late to be in order".to_owned(), now + hold);
        assert_eq!(all(&mut merge, now + hold * 2), ["too late to be in order"]);
    }

    #[test]
    fn a_source_that_begins_again_goes_on() {
        let now = Instant::now();
        let mut merge = LogMerge::new(Some(Duration::ZERO));
        merge.begin(1);
        merge.end(&1);
        merge.begin(1);
        merge.push(&1, 1, "again".to_owned(), now);
        assert_eq!(all(&mut merge, now), ["again"]);
        assert!(!merge.is_done());
    }

    proptest! {
        #[test]
        fn lines_of_ordered_sources_come_out_in_order_and_none_is_lost(
            sources in prop::collection::vec(prop::collection::vec(0u64..50, 0..20), 1..6),
            picks in prop::collection::vec(0usize..6, 0..200),
        ) {
            let now = Instant::now();
            let mut merge = LogMerge::new(None);
            let mut left: Vec<VecDeque<u64>> = sources
                .iter()
                .map(|times| {
                    let mut times = times.clone();
                    times.sort_unstable();
                    times.into()
                })
                .collect();
            (0..left.len()).for_each(|source| merge.begin(source));
            let mut out: Vec<(u64, usize)> = Vec::new();
            let order = picks.into_iter().chain((0..6).flat_map(|source| [source; 21]));
            for pick in order {
                let Some(times) = left.get_mut(pick) else { continue };
                match times.pop_front() {
                    Some(time) => merge.push(&pick, time, (time, pick), now),
                    None => merge.end(&pick),
                }
                while let Some(line) = merge.pop(now) {
                    out.push(line);
                }
            }
            prop_assert!(merge.is_done());
            prop_assert!(out.is_sorted_by_key(|(time, _)| *time));
            prop_assert_eq!(out.len(), sources.iter().map(Vec::len).sum::<usize>());
        }
    }
}
