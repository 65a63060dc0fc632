//! Caches answers from Redis. Pure.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use super::answer::NameLookup;

const FAILURE_KEPT: Duration = Duration::from_secs(3);
/// An expired value is used during its refresh. A returned address is not reused for an hour.
const STALE_KEPT: Duration = Duration::from_secs(10 * 60);
/// Above it, negative entries are dropped: pods may ask for any name.
const MAX_MISSING: usize = 20_000;

#[derive(Debug)]
pub(super) struct Cache<K, V> {
    entries: HashMap<K, CacheEntry<V>>,
    found_kept: Duration,
    missing_kept: Duration,
}

#[derive(Debug)]
struct CacheEntry<V> {
    known: Result<Option<V>, Unanswered>,
    until: Instant,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Unanswered;

impl<K: Hash + Eq, V: Clone> Cache<K, V> {
    pub(super) fn new(found_kept: Duration, missing_kept: Duration) -> Self {
        Self { entries: HashMap::new(), found_kept, missing_kept }
    }

    pub(super) fn get(&self, key: &K, now: Instant) -> NameLookup<V> {
        let Some(CacheEntry { known, until }) = self.entries.get(key) else { return NameLookup::NotAsked };
        match known {
            Ok(Some(value)) if now < *until + STALE_KEPT => NameLookup::Found(value.clone()),
            Ok(None) if now < *until => NameLookup::Missing,
            Err(Unanswered) if now < *until => NameLookup::Unavailable,
            _ => NameLookup::NotAsked,
        }
    }

    /// True if the caller is to refresh an expired value: others get false for a while.
    pub(super) fn take_due(&mut self, key: &K, now: Instant) -> bool {
        match self.entries.get_mut(key) {
            Some(CacheEntry { known: Ok(Some(_)), until }) if now >= *until => {
                *until = now + FAILURE_KEPT;
                true
            }
            Some(_) | None => false,
        }
    }

    /// The value is used, and refreshed at once.
    pub(super) fn insert_saved(&mut self, key: K, value: V, now: Instant) {
        self.entries.insert(key, CacheEntry { known: Ok(Some(value)), until: now });
    }

    /// Also expired values.
    pub(super) fn found(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().filter_map(|(key, entry)| Some((key, entry.known.as_ref().ok()?.as_ref()?)))
    }

    /// After a failure, the old value stays.
    pub(super) fn set(&mut self, key: K, answer: Result<Option<V>, Unanswered>, now: Instant) {
        let (known, kept) = match answer {
            Ok(Some(_)) => (answer, self.found_kept),
            Ok(None) => (answer, self.missing_kept),
            Err(Unanswered) => (self.entries.remove(&key).map_or(answer, |entry| entry.known), FAILURE_KEPT),
        };
        if self.entries.len() >= MAX_MISSING {
            self.entries.retain(|_, entry| matches!(entry.known, Ok(Some(_))));
        }
        self.entries.insert(key, CacheEntry { known, until: now + kept });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_is_missing_counts_for_a_moment_and_what_was_found_while_it_is_asked_for_again() {
        let start = Instant::now();
        let mut cache = Cache::new(60 * SECOND, 2 * SECOND);
        assert_eq!(cache.get(&"web", start), NameLookup::NotAsked);
        cache.set("web", Ok(Some(7)), start);
        cache.set("db", Ok(None), start);
        assert!(!cache.take_due(&"web", start + 59 * SECOND));
        let later = start + 60 * SECOND;
        assert!(cache.take_due(&"web", later));
        assert!(!cache.take_due(&"web", later), "it is being asked for");
        assert_eq!(cache.get(&"web", later), NameLookup::Found(7));
        cache.set("web", Ok(Some(8)), later);
        assert_eq!(cache.get(&"web", later), NameLookup::Found(8));
        let long_after = later + 60 * SECOND + STALE_KEPT;
        assert_eq!(cache.get(&"web", long_after), NameLookup::NotAsked, "another may have the address");
        assert_eq!(cache.get(&"db", start + SECOND), NameLookup::Missing);
        assert_eq!(cache.get(&"db", start + 2 * SECOND), NameLookup::NotAsked, "it may be there now");
        assert!(!cache.take_due(&"db", later));
    }

    #[test]
    fn while_redis_is_away_what_was_known_stays() {
        let start = Instant::now();
        let mut cache = Cache::new(60 * SECOND, 2 * SECOND);
        cache.set("web", Ok(Some(7)), start);
        cache.set("db", Ok(None), start);
        let hours = start + 7200 * SECOND;
        for key in ["web", "db", "cache"] {
            cache.set(key, Err(Unanswered), hours);
        }
        assert_eq!(cache.get(&"web", hours), NameLookup::Found(7));
        assert_eq!(cache.get(&"db", hours), NameLookup::Missing);
        assert_eq!(cache.get(&"cache", hours), NameLookup::Unavailable);
        assert_eq!(cache.get(&"cache", hours + FAILURE_KEPT), NameLookup::NotAsked, "it may be back");
    }

    #[test]
    fn names_that_do_not_exist_are_not_kept_without_end() {
        let now = Instant::now();
        let mut cache = Cache::new(SECOND, SECOND);
        cache.set(usize::MAX, Ok(Some(())), now);
        for key in 0..3 * MAX_MISSING {
            cache.set(key, Ok(None), now);
        }
        assert!(cache.entries.len() <= MAX_MISSING);
        assert_eq!(cache.get(&usize::MAX, now), NameLookup::Found(()));
    }
}
