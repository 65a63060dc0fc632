//! Nodes and schedulers whose failure detection times differ from the others. Pure.

use std::collections::BTreeMap;

use model::ids::SchedulerId;
use model::node::timing::Timing;
use model::node::{Node, NodeState};

use crate::first_names::first_names;

const MAX_NAMES: usize = 3;

pub(crate) fn sentences(nodes: &[Node], schedulers: &[(SchedulerId, Timing)]) -> Vec<String> {
    let nodes = nodes.iter().filter(|node| node.state == NodeState::Alive);
    let nodes = nodes.filter_map(|node| Some((node.timing?, format!("node {}", node.name))));
    let schedulers = schedulers.iter().map(|(id, timing)| (*timing, format!("scheduler {id}")));
    let mut groups: BTreeMap<_, (Timing, Vec<String>)> = BTreeMap::new();
    for (timing, name) in nodes.chain(schedulers) {
        let times = (timing.dead_after, timing.fence_after, timing.heartbeat);
        groups.entry(times).or_insert((timing, Vec::new())).1.push(name);
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    // On a tie shorter times come first.
    groups.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
    let mut groups = groups.into_iter();
    let Some((most, _)) = groups.next() else { return Vec::new() };
    groups.map(|(timing, names)| sentence(&names, &timing, &most)).collect()
}

fn sentence(names: &[String], timing: &Timing, most: &Timing) -> String {
    let have = if names.len() == 1 { "has" } else { "have" };
    format!(
        "{} {have} {}, and the others {}: set the same times on all machines",
        first_names(names, MAX_NAMES),
        settings(timing),
        settings(most)
    )
}

fn settings(timing: &Timing) -> String {
    let Timing { heartbeat, fence_after, dead_after } = timing;
    format!(
        "KUBELEET_HEARTBEAT {heartbeat:?}, KUBELEET_FENCE_AFTER {fence_after:?} and KUBELEET_DEAD_AFTER \
         {dead_after:?}"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::time::Duration;

    use super::*;

    fn times(dead: u64) -> Timing {
        Timing { dead_after: Duration::from_secs(dead), ..Timing::default() }
    }

    fn schedulers(times_of: &[(&str, u64)]) -> Vec<(SchedulerId, Timing)> {
        times_of.iter().map(|(id, dead)| (SchedulerId::new(*id).unwrap(), times(*dead))).collect()
    }

    #[test]
    fn those_with_other_times_than_most_are_named() {
        for (all, expected) in [
            (&[][..], vec![]),
            (&[("a", 20)], vec![]),
            (&[("a", 20), ("b", 20)], vec![]),
            (&[("a", 20), ("b", 90), ("c", 20)], vec!["scheduler b has"]),
            (&[("a", 90), ("b", 20)], vec!["scheduler a has"]),
            (&[("a", 20), ("b", 90), ("c", 30)], vec!["scheduler c has", "scheduler b has"]),
            (
                &[
                    ("a", 20),
                    ("b", 20),
                    ("c", 20),
                    ("d", 20),
                    ("e", 20),
                    ("f", 9),
                    ("g", 9),
                    ("h", 9),
                    ("i", 9),
                ],
                vec!["scheduler f, scheduler g, scheduler h and 1 more have"],
            ),
        ] {
            let found = sentences(&[], &schedulers(all));
            assert_eq!(found.len(), expected.len(), "{found:?}");
            assert!(found.iter().zip(expected).all(|(line, begin)| line.starts_with(begin)), "{found:?}");
        }
        let found = sentences(&[], &schedulers(&[("a", 20), ("b", 20), ("c", 90)]));
        let words = "KUBELEET_FENCE_AFTER 15s and KUBELEET_DEAD_AFTER 90s, and the others";
        assert!(found[0].contains(words), "{found:?}");
    }
}
