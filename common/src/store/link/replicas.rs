//! Which replicas a write has to reach before it is called durable.
//!
//! A write survives a failover when every replica that can become the master has it. So those are counted that are
//! attached to the master right now, those that the sentinels may elect, and those that were attached a moment ago and
//! of which nobody has said that they can not be elected. At least half of all servers is asked for in any case: the
//! smaller part of a network that fell apart never calls anything durable. `docs/HA.md` has the reasoning.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long a replica counts that was attached to the master, when no sentinel speaks of it.
const MEMORY: Duration = Duration::from_secs(60);

/// For so long after one is missed a write still waits for it to come back. Later that would only hold up the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// How far a write has to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    /// So many replicas make it durable.
    pub(super) known: usize,
    /// So many can be expected to have it soon.
    pub(super) expected: usize,
}

/// What the sentinels say of the replicas of one master.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Survey {
    /// The master, `host:port`.
    pub(super) master: String,
    /// Every replica that one of them knows, and whether one of them might elect it.
    pub(super) replicas: BTreeMap<String, bool>,
    /// Whether more than half of the sentinels have spoken: less can not say that a replica will not be elected.
    pub(super) complete: bool,
}

/// What is known of the replicas.
#[derive(Debug, Default)]
pub(super) struct ReplicaMemory {
    /// When each was last attached to the master.
    attached: BTreeMap<String, Instant>,
    survey: Survey,
    /// Since when fewer are attached than a write has to reach.
    short_since: Option<Instant>,
}

impl ReplicaMemory {
    /// These are attached to the master at `now`. Gives how far a write has to get.
    pub(super) fn note_attached(&mut self, now: Instant, replicas: BTreeSet<String>) -> Reach {
        self.attached.retain(|_, seen| now.duration_since(*seen) < MEMORY);
        let known = self.count(&replicas, now);
        let there = replicas.len().min(known);
        self.attached.extend(replicas.into_iter().map(|replica| (replica, now)));
        if there == known {
            self.short_since = None;
            return Reach { known, expected: known };
        }
        let missed_for = now.saturating_duration_since(*self.short_since.get_or_insert(now));
        Reach { known, expected: if missed_for > PATIENCE { there } else { known } }
    }

    /// The sentinels say so. What only few of them say takes no replica off the list.
    pub(super) fn note_survey(&mut self, survey: Survey) {
        if survey.complete {
            self.survey = survey;
            return;
        }
        self.survey.master = survey.master;
        self.survey.replicas.extend(survey.replicas.into_keys().map(|replica| (replica, true)));
    }

    /// How many a write would have to reach, as far as is known without asking the master.
    pub(super) fn known(&self, now: Instant) -> usize {
        self.count(&BTreeSet::new(), now)
    }

    fn count(&self, attached: &BTreeSet<String>, now: Instant) -> usize {
        let sentinels =
            self.survey.replicas.iter().filter(|(_, electable)| **electable).map(|(name, _)| name);
        let unheard = |name: &&String| !self.survey.replicas.contains_key(*name);
        let recent = self.attached.iter().filter(|(_, seen)| now.duration_since(**seen) < MEMORY);
        let remembered = recent.map(|(name, _)| name).filter(unheard);
        let mut must: BTreeSet<&String> = sentinels.chain(remembered).chain(attached).collect();
        must.remove(&self.survey.master);
        must.len().max(self.survey.replicas.len().div_ceil(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn survey(complete: bool, replicas: &[(&str, bool)]) -> Survey {
        let replicas = replicas.iter().map(|(name, electable)| ((*name).to_owned(), *electable)).collect();
        Survey { master: "m".to_owned(), replicas, complete }
    }

    fn at(seconds: u64) -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now) + Duration::from_secs(seconds)
    }

    #[test]
    fn without_sentinels_a_replica_counts_for_a_minute() {
        let mut memory = ReplicaMemory::default();
        assert_eq!(memory.known(at(0)), 0);
        for (second, attached, expected) in [
            (0, &["a", "b"][..], 2),
            (1, &[], 2),
            (30, &["a"], 2),
            (59, &["c"], 3),
            (61, &[], 2),
            (91, &[], 1),
        ] {
            assert_eq!(memory.note_attached(at(second), set(attached)).known, expected, "second {second}");
        }
        assert_eq!(memory.known(at(200)), 0);
    }

    #[test]
    fn who_can_not_be_elected_is_not_waited_for() {
        let mut memory = ReplicaMemory::default();
        memory.note_survey(survey(true, &[("a", true), ("b", true)]));
        assert_eq!(
            memory.note_attached(at(0), set(&["a"])).known,
            2,
            "b is cut off from its master, and may be elected"
        );
        memory.note_survey(survey(true, &[("a", true), ("b", false)]));
        assert_eq!(memory.note_attached(at(1), set(&["a"])).known, 1, "b is gone");
        assert_eq!(
            memory.note_attached(at(2), set(&["a", "b"])).known,
            2,
            "it is back: what it confirms must not stand for a"
        );
        assert_eq!(memory.note_attached(at(3), set(&["a", "c"])).known, 2, "c is new");
        assert_eq!(memory.note_attached(at(4), set(&["a"])).known, 2, "and was there a moment ago");
    }

    #[test]
    fn one_that_is_missing_for_long_holds_up_no_answer() {
        let mut memory = ReplicaMemory::default();
        memory.note_survey(survey(true, &[("a", true), ("b", true)]));
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
            let reach = memory.note_attached(at(second), set(attached));
            assert_eq!(reach, Reach { known: 2, expected }, "second {second}");
        }
    }

    #[test]
    fn a_minority_of_the_sentinels_takes_nobody_off_the_list() {
        let mut memory = ReplicaMemory::default();
        memory.note_survey(survey(true, &[("a", true), ("b", true)]));
        memory.note_survey(survey(false, &[("a", false), ("b", false), ("c", false)]));
        assert_eq!(memory.known(at(0)), 3);
    }

    #[test]
    fn half_of_all_servers_in_any_case() {
        for (replicas, least) in [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2), (5, 3)] {
            let names: Vec<String> = (0..replicas).map(|n| n.to_string()).collect();
            let gone: Vec<(&str, bool)> = names.iter().map(|name| (name.as_str(), false)).collect();
            let mut memory = ReplicaMemory::default();
            memory.note_survey(survey(true, &gone));
            assert_eq!(
                memory.note_attached(at(0), BTreeSet::new()).known,
                least,
                "{replicas} replicas, all gone"
            );
        }
    }

    #[test]
    fn a_promoted_replica_is_none_any_more() {
        let mut memory = ReplicaMemory::default();
        memory.note_attached(at(0), set(&["m", "b"]));
        memory.note_survey(survey(true, &[("b", true), ("old", true)]));
        assert_eq!(memory.note_attached(at(1), set(&["b"])).known, 2);
    }
}
