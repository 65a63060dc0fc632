//! One table for all filters: what is changed about a well node, and who then refuses with which words.

use common::node::{NodeKind, NodeState};

use super::*;
use crate::decide::policy::Weights;
use crate::decide::testing::{NOW, NodeBuilder, node};

const GIB: u64 = 1 << 30;

fn refusals(node: NodeBuilder, cpu_millis: u64, memory_bytes: u64, only_an_image: bool) -> Vec<String> {
    let node = node.build();
    let candidate = Candidate::of(&node, &Weights::default());
    let need = Need { cpu_millis, memory_bytes, pods: 1, only_an_image };
    let moment = Moment { now: NOW, dead_after: Duration::from_secs(20) };
    refusing(&candidate, &need, &moment)
        .map(|filter| format!("{}: {}", filter.reason, (filter.explain)(&candidate, &need, &moment, &node)))
        .collect()
}

#[test]
fn what_a_pod_that_asks_for_nothing_meets() {
    let guest = |n: &mut Node| n.kind = NodeKind::Guest;
    let cases: [(&str, NodeBuilder, &[&str]); 14] = [
        ("well", node("a"), &[]),
        ("just fresh enough", node("a").with(|n| n.beat = NOW - 20_000), &[]),
        (
            "silent",
            node("a").with(|n| n.beat = NOW - 20_001),
            &["NotReady: last heartbeat 20.001 s ago, at most 20 s allowed"],
        ),
        ("beat ahead of the clock", node("a").with(|n| n.beat = NOW + 5_000), &[]),
        ("no beat", node("a").with(|n| n.beat = 0), &["NotReady: has not sent a heartbeat yet"]),
        (
            "dead",
            node("a").with(|n| n.state = NodeState::Dead),
            &["NotReady: declared dead; it comes back by registering again"],
        ),
        (
            "cordoned",
            node("a").with(|n| n.cordoned = true),
            &["Cordoned: gets nothing new until a person lifts the cordon"],
        ),
        (
            "engine",
            node("a").with(|n| n.engine_problem = Some("no space left".into())),
            &["EngineUnhealthy: its engine says: no space left"],
        ),
        (
            "engine without words",
            node("a").with(|n| n.engine_problem = Some(String::new())),
            &["EngineUnhealthy: its engine says: (nothing)"],
        ),
        ("last slot", node("a").pods(109, 110), &[]),
        ("full", node("a").pods(110, 110), &["TooManyPods: has 110 of 110 pods"]),
        ("fuller than full", node("a").pods(12, 10), &["TooManyPods: has 12 of 10 pods"]),
        ("nothing left but asks for nothing", node("a").cpu(9_000, 4_000).memory(9, 4), &[]),
        ("guest", node("a").with(guest), &[]),
    ];
    for (case, node, expected) in cases {
        assert_eq!(refusals(node, 0, 0, true), expected, "{case}");
    }
}

#[test]
fn what_a_demanding_pod_meets() {
    let cases: [(&str, NodeBuilder, &[&str]); 6] = [
        ("fits", node("a").cpu(2_000, 4_000).memory(6 * GIB, 8 * GIB), &[]),
        (
            "a thousandth short",
            node("a").cpu(2_001, 4_000),
            &["InsufficientCpu: needs 2 cores, 1.999 of 4 free"],
        ),
        (
            "a byte short",
            node("a").memory(6 * GIB + 1, 8 * GIB),
            &["InsufficientMemory: needs 2 GiB, 1.99 GiB of 8 GiB free"],
        ),
        (
            "shrunk",
            node("a").memory(8 * GIB, 4 * GIB),
            &["InsufficientMemory: needs 2 GiB, 0 B of 4 GiB free"],
        ),
        (
            "guest",
            node("a").with(|n| n.kind = NodeKind::Guest),
            &["NeedsMoreThanGuest: served by another program, which can start plain images only"],
        ),
        (
            "several at once",
            node("a").cpu(4_000, 4_000).memory(7 * GIB, 8 * GIB).with(|n| n.cordoned = true),
            &[
                "Cordoned: gets nothing new until a person lifts the cordon",
                "InsufficientCpu: needs 2 cores, 0 of 4 free",
                "InsufficientMemory: needs 2 GiB, 1 GiB of 8 GiB free",
            ],
        ),
    ];
    for (case, node, expected) in cases {
        assert_eq!(refusals(node, 2_000, 2 * GIB, false), expected, "{case}");
    }
}

#[test]
fn reasons_are_written_as_they_are_called() {
    for reason in OF_NODE.iter().chain(&OF_POD).map(|f| f.reason).chain([Reason::NoNodes]) {
        assert_eq!(reason.as_str(), format!("{reason:?}"));
    }
}
