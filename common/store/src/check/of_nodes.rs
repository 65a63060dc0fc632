//! Problems in usage and stop requests of nodes. Pure.

use super::finding::{Finding, Repair, finding};
use super::key_copy::{KeyCopy, is_placed};
use crate::NodeUsage;
use model::node::resources::{Resource, Resources};

/// Finds none while a record is unreadable, since the sum of the pods would be too small.
pub(super) fn wrong_sums(copy: &KeyCopy) -> Vec<Finding> {
    let is_incomplete =
        !copy.unreadable_pods.is_empty() || copy.pods.values().any(|pod| pod.unreadable.is_some());
    if is_incomplete {
        return Vec::new();
    }
    copy.usage.iter().filter_map(|seen| wrong_sum(seen, actual_use(copy, seen.name.as_str()))).collect()
}

fn actual_use(copy: &KeyCopy, node: &str) -> Resources {
    let here = copy.pods.values().filter(|pod| is_placed(pod) && pod.node == node);
    here.fold(Resources::default(), |sum, pod| sum.saturating_add(Resources { pods: 1, ..pod.request }))
}

fn wrong_sum(seen: &NodeUsage, actual: Resources) -> Option<Finding> {
    let names = Resource::ALL.map(Resource::used_field);
    let names = std::iter::once("used_pods").chain(names.iter().map(String::as_str));
    let fields = names.zip(seen.used).zip(actual.to_array());
    let wrong = fields.filter(|((_, seen), actual)| i64::try_from(*actual) != Ok(*seen));
    let wrong: Vec<String> =
        wrong.map(|((field, seen), actual)| format!("{field} is {seen}, its pods use {actual}")).collect();
    (!wrong.is_empty()).then(|| {
        let repair = Repair::CorrectUsage { seen: seen.clone(), actual };
        finding(format!("node:{}", seen.name), wrong.join("; "), repair)
    })
}

pub(super) fn pointless_stops(copy: &KeyCopy) -> Vec<Finding> {
    let mut found = Vec::new();
    for (node, members) in &copy.stops {
        for member in members {
            let id = String::from_utf8_lossy(member);
            let pod = copy.pods.get(id.as_ref());
            if copy.unreadable_pods.contains(id.as_ref())
                || pod.is_some_and(|pod| is_placed(pod) && pod.node == *node || pod.unreadable.is_some())
            {
                continue;
            }
            let problem = match pod {
                None => format!("lists {id:.100}, which has no record"),
                Some(pod) => format!("lists {id}, which is {} and not on {node}", pod.phase),
            };
            let repair = Repair::remove_of_pod(member, &id, pod.cloned().unwrap_or_default());
            found.push(finding(format!("stop:{node}"), problem, repair));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::collections::BTreeMap;

    use super::super::key_copy::PodCopy;
    use super::*;
    use model::ids::{Incarnation, NodeName};

    fn copy(used: [i64; 1 + Resource::ALL.len()], pod: PodCopy) -> KeyCopy {
        let usage = NodeUsage {
            name: NodeName::new("w1").unwrap(),
            incarnation: Incarnation::random(),
            reservations: 1,
            used,
            held: BTreeMap::new(),
        };
        KeyCopy { usage: vec![usage], pods: BTreeMap::from([("a".to_owned(), pod)]), ..KeyCopy::default() }
    }

    fn pod(phase: &str, node: &str) -> PodCopy {
        let (phase, node) = (phase.to_owned(), node.to_owned());
        let request = Resources { cpu_millis: 100, memory_bytes: 64, pids: 7, disk_bytes: 0, pods: 0 };
        PodCopy { phase, node, request, ..PodCopy::default() }
    }

    #[test]
    fn sums_that_differ_from_the_records_are_found() {
        let table = [
            ([1, 100, 64, 7, 0], pod("running", "w1"), ""),
            ([1, 100, 64, 7, 0], pod("stopping", "w1"), ""),
            ([0, 0, 0, 0, 0], pod("running", "w2"), ""),
            ([0, 0, 0, 0, 0], pod("pending", "w1"), ""),
            ([2, 100, 64, 7, 0], pod("running", "w1"), "used_pods is 2, its pods use 1"),
            (
                [1, -5, 9, 7, 0],
                pod("running", "w1"),
                "used_cpu is -5, its pods use 100; used_memory is 9, its pods use 64",
            ),
            ([9, 9, 9, 9, 0], PodCopy { unreadable: Some("x".to_owned()), ..pod("running", "w1") }, ""),
        ];
        for (used, pod, expected) in table {
            let found: Vec<String> =
                wrong_sums(&copy(used, pod)).into_iter().map(|found| found.problem).collect();
            assert_eq!(found.join(" / "), expected, "{used:?}");
        }
    }

    #[test]
    fn stops_of_pods_that_are_not_there_are_found() {
        for (member, pod, expected) in [
            (&b"a"[..], pod("stopping", "w1"), ""),
            (b"a", pod("running", "w1"), ""),
            (b"a", pod("running", "w2"), "lists a, which is running and not on w1"),
            (b"a", pod("stopped", "w1"), "lists a, which is stopped and not on w1"),
            (b"gone", pod("running", "w1"), "lists gone, which has no record"),
            (b"\xff", pod("running", "w1"), "lists \u{fffd}, which has no record"),
        ] {
            let stops = BTreeMap::from([("w1".to_owned(), vec![member.to_vec()])]);
            let found = pointless_stops(&KeyCopy { stops, ..copy([1, 100, 64, 7, 0], pod) });
            let found: Vec<String> = found.into_iter().map(|found| found.problem).collect();
            assert_eq!(found.join(" / "), expected, "{member:?}");
        }
    }
}
