//! Counts the replicas that a durable write must reach.
//!
//! A write survives a failover if every replica that can become the master has it. These replicas count:
//!
//! - those attached to the master now;
//! - those that the Sentinels may elect;
//! - those attached recently, unless the Sentinels report that they cannot be elected.
//!
//! A write must also reach at least half of all replicas: the smaller side of a partition never calls a write
//! durable.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A replica counts for this time, if no Sentinel reports on it.
const RECENTLY_ATTACHED: Duration = Duration::from_secs(60);

/// Later, the wait would only delay every reply.
const WAIT_FOR_MISSING: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConfirmTarget {
    /// For a durable write.
    pub(super) required: usize,
    /// The write waits for these.
    pub(super) expected: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SentinelView {
    pub(super) master: String,
    /// True for those that a Sentinel could elect.
    pub(super) replicas: BTreeMap<String, bool>,
    /// Less than a majority cannot rule out an election.
    pub(super) is_majority: bool,
}

#[derive(Debug, Default)]
pub(super) struct ReplicaTracker {
    /// When last seen.
    attached: BTreeMap<String, Instant>,
    view: SentinelView,
    incomplete_since: Option<Instant>,
}

impl ReplicaTracker {
    /// Replicas `behind` receive a full copy or lag: no write waits for them.
    pub(super) fn record_attached(
        &mut self,
        now: Instant,
        replicas: BTreeSet<String>,
        behind: usize,
    ) -> ConfirmTarget {
        self.attached.retain(|_, last_seen| now.duration_since(*last_seen) < RECENTLY_ATTACHED);
        let required = self.count(&replicas, now);
        let present = replicas.len().min(required);
        self.attached.extend(replicas.into_iter().map(|replica| (replica, now)));
        if present == required {
            self.incomplete_since = None;
            return ConfirmTarget { required, expected: required.saturating_sub(behind) };
        }
        let incomplete_since = *self.incomplete_since.get_or_insert(now);
        let is_long_ago = now.saturating_duration_since(incomplete_since) > WAIT_FOR_MISSING;
        let expected = if is_long_ago { present } else { required };
        ConfirmTarget { required, expected: expected.saturating_sub(behind) }
    }

    /// A minority of Sentinels can add replicas but not remove any.
    pub(super) fn record_sentinel_view(&mut self, view: SentinelView) {
        if view.is_majority {
            self.view = view;
            return;
        }
        self.view.master = view.master;
        self.view.replicas.extend(view.replicas.into_keys().map(|replica| (replica, true)));
    }

    pub(super) fn required(&self, now: Instant) -> usize {
        self.count(&BTreeSet::new(), now)
    }

    fn count(&self, attached: &BTreeSet<String>, now: Instant) -> usize {
        let reported = &self.view.replicas;
        let electable = reported.iter().filter(|(_, electable)| **electable).map(|(name, _)| name);
        let recent = self.attached.iter().filter(|(name, last_seen)| {
            now.duration_since(**last_seen) < RECENTLY_ATTACHED && !reported.contains_key(*name)
        });
        let recent = recent.map(|(name, _)| name);
        let mut counted: BTreeSet<&String> = electable.chain(recent).chain(attached).collect();
        counted.remove(&self.view.master);
        counted.len().max(reported.len().div_ceil(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn view(is_majority: bool, replicas: &[(&str, bool)]) -> SentinelView {
        let replicas = replicas.iter().map(|(name, electable)| ((*name).to_owned(), *electable)).collect();
        SentinelView { master: "m".to_owned(), replicas, is_majority }
    }

    fn at(seconds: u64) -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now) + Duration::from_secs(seconds)
    }

    #[test]
    fn without_sentinels_a_replica_counts_for_a_minute() {
        let mut tracker = ReplicaTracker::default();
        assert_eq!(tracker.required(at(0)), 0);
        for (second, attached, expected) in [
            (0, &["a", "b"][..], 2),
            (1, &[], 2),
            (30, &["a"], 2),
            (59, &["c"], 3),
            (61, &[], 2),
            (91, &[], 1),
        ] {
            assert_eq!(
                tracker.record_attached(at(second), set(attached), 0).required,
                expected,
                "second {second}"
            );
        }
        assert_eq!(tracker.required(at(200)), 0);
    }

    #[test]
    fn a_replica_that_cannot_be_elected_does_not_count() {
        let mut tracker = ReplicaTracker::default();
        tracker.record_sentinel_view(view(true, &[("a", true), ("b", true)]));
        assert_eq!(
            tracker.record_attached(at(0), set(&["a"]), 0).required,
            2,
            "b is cut off from its master, and may be elected"
        );
        tracker.record_sentinel_view(view(true, &[("a", true), ("b", false)]));
        assert_eq!(tracker.record_attached(at(1), set(&["a"]), 0).required, 1, "b is gone");
        assert_eq!(
            tracker.record_attached(at(2), set(&["a", "b"]), 0).required,
            2,
            "b is back: its confirmation must not replace that of a"
        );
        assert_eq!(tracker.record_attached(at(3), set(&["a", "c"]), 0).required, 2, "c is new");
        assert_eq!(tracker.record_attached(at(4), set(&["a"]), 0).required, 2, "c was attached a moment ago");
    }

    #[test]
    fn a_replica_that_is_missing_for_long_does_not_delay_replies() {
        let mut tracker = ReplicaTracker::default();
        tracker.record_sentinel_view(view(true, &[("a", true), ("b", true)]));
        let table: [(u64, &[&str], usize); 7] = [
            (0, &["a", "b"], 2),
            (10, &["a"], 2),
            (12, &["a"], 2),
            (13, &["a"], 1),
            (14, &[], 0),
            (15, &["a", "b"], 2),
            (16, &["b"], 2),
        ];
        for (second, attached, expected) in table {
            let target = tracker.record_attached(at(second), set(attached), 0);
            assert_eq!(target, ConfirmTarget { required: 2, expected }, "second {second}");
        }
    }

    #[test]
    fn no_write_waits_for_a_replica_that_is_resyncing() {
        let mut tracker = ReplicaTracker::default();
        tracker.record_sentinel_view(view(true, &[("a", true), ("b", true)]));
        let target = |behind, tracker: &mut ReplicaTracker| {
            let ConfirmTarget { required, expected } =
                tracker.record_attached(at(0), set(&["a", "b"]), behind);
            (required, expected)
        };
        assert_eq!(target(0, &mut tracker), (2, 2));
        assert_eq!(target(1, &mut tracker), (2, 1), "less certain, not slower");
        assert_eq!(target(2, &mut tracker), (2, 0));
    }

    #[test]
    fn a_minority_of_the_sentinels_removes_no_replica() {
        let mut tracker = ReplicaTracker::default();
        tracker.record_sentinel_view(view(true, &[("a", true), ("b", true)]));
        tracker.record_sentinel_view(view(false, &[("a", false), ("b", false), ("c", false)]));
        assert_eq!(tracker.required(at(0)), 3);
    }

    #[test]
    fn half_of_all_replicas_count_in_any_case() {
        for (replicas, minimum) in [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2), (5, 3)] {
            let names: Vec<String> = (0..replicas).map(|n| n.to_string()).collect();
            let gone: Vec<(&str, bool)> = names.iter().map(|name| (name.as_str(), false)).collect();
            let mut tracker = ReplicaTracker::default();
            tracker.record_sentinel_view(view(true, &gone));
            assert_eq!(
                tracker.record_attached(at(0), BTreeSet::new(), 0).required,
                minimum,
                "{replicas} replicas, all gone"
            );
        }
    }

    #[test]
    fn a_promoted_replica_does_not_count() {
        let mut tracker = ReplicaTracker::default();
        tracker.record_attached(at(0), set(&["m", "b"]), 0);
        tracker.record_sentinel_view(view(true, &[("b", true), ("old", true)]));
        assert_eq!(tracker.record_attached(at(1), set(&["b"]), 0).required, 2);
    }
}
