//! Checks whether Redis would survive its next fault, by its replicas and Sentinels. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::{ServerInfo, Store};
use redis_link::{SentinelFacts, SentinelReport};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Redundancy {
    pub expected: BTreeSet<String>,
    pub attached: BTreeSet<String>,
    /// In the Redis URL.
    pub sentinels: usize,
    pub sentinels_answering: usize,
    pub can_fail_over: Option<bool>,
    pub concerns: Vec<String>,
}

impl Store {
    /// Takes at most some seconds.
    pub async fn inspect_sentinels(&self) -> Vec<SentinelReport> {
        self.link.inspect_sentinels().await
    }
}

impl Redundancy {
    /// `remembered` replicas count only without Sentinels. `min_replicas` is `min-replicas-to-write`.
    pub fn of(
        server: Option<&ServerInfo>,
        min_replicas: Option<u64>,
        sentinels: &[SentinelReport],
        remembered: &BTreeSet<String>,
    ) -> Self {
        let facts = answers(sentinels);
        let master = facts.values().next().map(|facts| facts.master.clone());
        let all = server.map(|server| server.replicas.as_slice()).unwrap_or_default();
        let attached: BTreeSet<String> =
            all.iter().filter(|replica| !replica.is_behind).map(|replica| replica.address.clone()).collect();
        let mut expected: BTreeSet<String> = all.iter().map(|replica| replica.address.clone()).collect();
        match sentinels.is_empty() {
            true => expected.extend(remembered.iter().cloned()),
            false => expected.extend(facts.values().flat_map(|facts| facts.replicas.keys().cloned())),
        }
        expected.retain(|replica| Some(replica) != master.as_ref());
        let mut concerns = sentinel_concerns(sentinels, &facts, attached.len());
        if server.is_some() {
            concerns.extend(replica_concerns(&expected, &attached, min_replicas));
        }
        Self {
            can_fail_over: (!sentinels.is_empty()).then(|| can_fail_over(sentinels.len(), &facts)),
            sentinels: sentinels.len(),
            sentinels_answering: facts.len(),
            expected,
            attached,
            concerns,
        }
    }

    pub fn missing(&self) -> impl Iterator<Item = &str> {
        self.expected.difference(&self.attached).map(String::as_str)
    }
}

type Facts<'a> = BTreeMap<&'a str, &'a SentinelFacts>;

fn answers(sentinels: &[SentinelReport]) -> Facts<'_> {
    sentinels
        .iter()
        .filter_map(|report| report.facts.as_ref().ok().map(|facts| (report.at.as_str(), facts)))
        .collect()
}

/// Enough Sentinels see each other to elect a replica, and one is eligible.
fn can_fail_over(known: usize, facts: &Facts<'_>) -> bool {
    facts.len() > known / 2
        && facts.values().any(|facts| {
            facts.reachable_sentinels >= needed(facts)
                && facts.replicas.values().any(|priority| *priority > 0)
        })
}

/// The quorum, and a majority.
fn needed(facts: &SentinelFacts) -> usize {
    facts.quorum.max(facts.sentinels / 2 + 1)
}

fn replica_concerns(
    expected: &BTreeSet<String>,
    attached: &BTreeSet<String>,
    min_replicas: Option<u64>,
) -> Vec<String> {
    let missing: Vec<&str> = expected.difference(attached).map(String::as_str).collect();
    let mut concerns = Vec::new();
    if !missing.is_empty() {
        concerns.push(format!(
            "{} of {} replicas of Redis {} away or too far behind: {}; start it, or see its log",
            missing.len(),
            expected.len(),
            if missing.len() == 1 { "is" } else { "are" },
            missing.join(", ")
        ));
    }
    if let Some(min) = min_replicas
        && !attached.is_empty()
        && attached.len() as u64 <= min
    {
        concerns.push(format!(
            "Redis has {} replicas that keep up and min-replicas-to-write is {min}: the loss of one stops all writes; \
             add a replica, or set min-replicas-to-write to {}",
            attached.len(),
            min.saturating_sub(1).max(1)
        ));
    }
    concerns
}

fn sentinel_concerns(sentinels: &[SentinelReport], facts: &Facts<'_>, attached: usize) -> Vec<String> {
    let mut concerns = Vec::new();
    let away: Vec<String> = sentinels
        .iter()
        .filter_map(|report| report.facts.as_ref().err().map(|why| format!("{} ({why})", report.at)))
        .collect();
    if !away.is_empty() {
        let enough = match facts.len() > sentinels.len() / 2 {
            true => "",
            false => ": more than half must answer, so no failover is possible",
        };
        let (answer, start) = match away.len() {
            1 => ("does not answer", "start it"),
            _ => ("do not answer", "start them"),
        };
        concerns.push(format!(
            "{} of {} Sentinels {answer}{enough}: {}; {start}",
            away.len(),
            sentinels.len(),
            away.join(", ")
        ));
    }
    let masters: BTreeSet<&str> = facts.values().map(|facts| facts.master.as_str()).collect();
    if masters.len() > 1 {
        let masters: Vec<&str> = masters.into_iter().collect();
        concerns.push(format!(
            "the Sentinels name different masters ({}): a failover ends within seconds; if this lasts, `SENTINEL RESET \
             mymaster` at the Sentinel that is wrong",
            masters.join(", ")
        ));
    }
    for (at, facts) in facts {
        concerns.extend(concerns_of_one(at, facts, attached));
    }
    concerns
}

fn concerns_of_one(at: &str, facts: &SentinelFacts, attached: usize) -> Vec<String> {
    let mut concerns = Vec::new();
    let SentinelFacts { master, quorum, sentinels, reachable_sentinels, replicas, .. } = facts;
    if facts.is_replica {
        concerns.push(format!(
            "the Sentinel {at} watches {master} as the master, and that is a replica: `SENTINEL REMOVE mymaster` and \
             `SENTINEL MONITOR mymaster HOST PORT QUORUM` there, with the address of the master"
        ));
    }
    if *reachable_sentinels < needed(facts) {
        concerns.push(format!(
            "no failover is possible: the Sentinel {at} reaches {reachable_sentinels} of {sentinels} Sentinels and needs \
             {} (quorum {quorum}); start the others, or lower the quorum with `SENTINEL SET`",
            needed(facts)
        ));
    }
    if replicas.is_empty() && attached > 0 {
        concerns.push(format!(
            "no failover is possible by the Sentinel {at}: it knows 0 replicas of {master}; right after SENTINEL RESET \
             or a start it finds them within 10 s"
        ));
    }
    if !replicas.is_empty() && replicas.values().all(|priority| *priority == 0) {
        concerns.push(format!(
            "no failover is possible by the Sentinel {at}: no replica of {master} may be promoted; `CONFIG SET \
             replica-priority 100` at each"
        ));
    }
    concerns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AttachedReplica;

    fn server(replicas: &[&str]) -> ServerInfo {
        let attached = |address: &&str| AttachedReplica { address: (*address).to_owned(), is_behind: false };
        ServerInfo { replicas: replicas.iter().map(attached).collect(), ..ServerInfo::default() }
    }

    fn well() -> SentinelFacts {
        SentinelFacts {
            master: "m:1".into(),
            is_replica: false,
            quorum: 2,
            sentinels: 3,
            reachable_sentinels: 3,
            replicas: [("a:1".to_owned(), 100), ("b:1".to_owned(), 100)].into(),
        }
    }

    fn three(change: impl Fn(usize, &mut SentinelFacts)) -> Vec<SentinelReport> {
        let report = |n: usize| {
            let mut facts = well();
            change(n, &mut facts);
            SentinelReport { at: format!("s{n}:1"), facts: Ok(facts) }
        };
        (1..=3).map(report).collect()
    }

    #[test]
    fn a_whole_installation_has_no_concern() {
        let whole = Redundancy::of(
            Some(&server(&["a:1", "b:1"])),
            Some(1),
            &three(|_, _| {}),
            &BTreeSet::from(["former:1".to_owned()]),
        );
        assert_eq!(whole.concerns, Vec::<String>::new());
        assert_eq!((whole.can_fail_over, whole.sentinels, whole.sentinels_answering), (Some(true), 3, 3));
        assert_eq!(Redundancy::of(None, None, &[], &BTreeSet::new()), Redundancy::default());
    }

    /// Name, attached replicas, `min-replicas-to-write`, Sentinels, words of a concern, possible failover.
    type Row<'a> = (&'a str, &'a [&'a str], Option<u64>, Vec<SentinelReport>, &'a [&'a str], bool);

    #[test]
    fn a_weak_installation_is_said_before_its_next_fault() {
        let both = ["a:1", "b:1"];
        let mut one_away = three(|_, _| {});
        one_away[2].facts = Err("no answer".into());
        let mut two_away = one_away.clone();
        two_away[1].facts = Err("refused".into());
        let table: Vec<Row<'_>> = vec![
            (
                "a replica",
                &["a:1"],
                None,
                three(|_, _| {}),
                &["1 of 2 replicas of Redis is away", "b:1"],
                true,
            ),
            ("no reserve", &both, Some(2), three(|_, _| {}), &["min-replicas-to-write is 2", "to 1"], true),
            (
                "a Sentinel",
                &both,
                None,
                one_away,
                &["1 of 3 Sentinels does not answer: s3:1 (no answer)"],
                true,
            ),
            ("two Sentinels", &both, None, two_away, &["no failover is possible", "s2:1 (refused)"], false),
            (
                "quorum",
                &both,
                None,
                three(|_, facts| (facts.quorum, facts.reachable_sentinels) = (3, 2)),
                &["reaches 2 of 3 Sentinels and needs 3 (quorum 3)"],
                false,
            ),
            ("reset", &both, None, three(|_, facts| facts.replicas.clear()), &["knows 0 replicas"], false),
            (
                "priority 0",
                &both,
                None,
                three(|_, facts| facts.replicas.values_mut().for_each(|priority| *priority = 0)),
                &["no replica of m:1 may be promoted"],
                false,
            ),
            (
                "a replica watched",
                &both,
                None,
                three(|_, facts| facts.is_replica = true),
                &["is a replica"],
                true,
            ),
            (
                "two masters",
                &both,
                None,
                three(|n, facts| facts.master = format!("m:{}", n.min(2))),
                &["different masters (m:1, m:2)"],
                true,
            ),
        ];
        for (name, replicas, min, sentinels, words, can_fail_over) in table {
            let found = Redundancy::of(Some(&server(replicas)), min, &sentinels, &BTreeSet::new());
            let said = found.concerns.join("\n");
            assert!(words.iter().all(|word| said.contains(word)), "{name}: {said}");
            assert_eq!(found.can_fail_over, Some(can_fail_over), "{name}");
        }
    }

    #[test]
    fn without_sentinels_a_replica_that_was_attached_is_missed() {
        let remembered = BTreeSet::from(["a:1".to_owned(), "b:1".to_owned()]);
        let found = Redundancy::of(Some(&server(&["a:1"])), None, &[], &remembered);
        assert_eq!(found.missing().collect::<Vec<_>>(), ["b:1"]);
        assert!(found.concerns[0].contains("b:1"), "{:?}", found.concerns);
        assert_eq!(found.can_fail_over, None);
    }
}
