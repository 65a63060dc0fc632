//! The effect of changes of the cluster: `plan`.

use api_types::{PlanView, PlannedNodeView, PlannedPodView, StuckPodView};
use model::ids::NodeName;

use crate::{humanize, table};

pub fn describe(plan: &PlanView) -> String {
    let mut text = format!("{}\n", summary(plan));
    for note in &plan.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    let changed: Vec<&PlannedPodView> = plan.moves.iter().chain(&plan.starts).chain(&plan.stops).collect();
    if !changed.is_empty() {
        let rows = changed.into_iter().map(pod_row).collect();
        text.push_str(&format!("\n{}\n", table::render(&["POD", "FROM", "TO"], rows)));
    }
    for (title, stuck) in [("DOES NOT FIT", &plan.stuck), ("WAITS FOR ITS DATA", &plan.waits_for_data)] {
        if !stuck.is_empty() {
            let rows = stuck.iter().map(stuck_row).collect();
            text.push_str(&format!("\n{}\n", table::render(&[title, "ON", "BECAUSE", "WHAT HELPS"], rows)));
        }
    }
    let nodes: Vec<&PlannedNodeView> = plan.nodes.iter().filter(|node| is_changed(node)).collect();
    if !nodes.is_empty() {
        let rows = nodes.into_iter().map(node_row).collect();
        text.push_str(&format!("\n{}\n", table::render(&["NODE", "PODS", "CPU", "MEMORY"], rows)));
    }
    text
}

fn summary(plan: &PlanView) -> String {
    let parts = [
        (plan.moves.len(), "move"),
        (plan.starts.len(), "start"),
        (plan.stops.len(), "stop"),
        (plan.stuck.len(), "do not fit"),
        (plan.waits_for_data.len(), "wait for their data"),
    ];
    let told: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    if told.is_empty() {
        "no pod moves, and all fit".to_owned()
    } else {
        format!("pods: {}", told.join(", "))
    }
}

fn is_changed(node: &PlannedNodeView) -> bool {
    node.is_lost || node.before != Some(node.after)
}

fn on(node: &Option<NodeName>) -> String {
    node.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string)
}

fn named(pod: &PlannedPodView) -> String {
    format!("{}-{}", pod.name, pod.replica)
}

fn pod_row(pod: &PlannedPodView) -> Vec<String> {
    vec![named(pod), on(&pod.from), on(&pod.to)]
}

fn stuck_row(StuckPodView { pod, why, change }: &StuckPodView) -> Vec<String> {
    vec![named(pod), on(&pod.to), humanize::shorten_message(why, 120), change.clone()]
}

fn node_row(of: &PlannedNodeView) -> Vec<String> {
    let name = match (of.is_lost, of.before) {
        (true, _) => format!("{} (lost)", of.node),
        (false, None) => format!("{} (new)", of.node),
        (false, Some(_)) => of.node.to_string(),
    };
    let before = of.before.unwrap_or_default();
    let change = |before: String, after: String, has: String| format!("{before} -> {after} of {has}");
    vec![
        name,
        change(before.pods.to_string(), of.after.pods.to_string(), of.capacity.pods.to_string()),
        change(
            humanize::cores(before.cpu_millis),
            humanize::cores(of.after.cpu_millis),
            humanize::cores(of.capacity.cpu_millis),
        ),
        change(
            humanize::bytes(before.memory_bytes),
            humanize::bytes(of.after.memory_bytes),
            humanize::bytes(of.capacity.memory_bytes),
        ),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plan_is_shown_with_its_moves_and_the_nodes_that_change() {
        let pod = |replica, from: Option<&str>, to: Option<&str>| json!({"uuid": null, "name": "web", "service": "web", "replica": replica, "from": from, "to": to});
        let amounts =
            |pods| json!({"cpu_millis": 0, "memory_bytes": 0, "pids": 0, "disk_bytes": 0, "pods": pods});
        let node = |name, before, after, is_lost| {
            json!({"node": name, "capacity": amounts(10), "before": before, "after": amounts(after),
                "is_lost": is_lost})
        };
        let plan: PlanView = serde_json::from_value(json!({
            "fits": false, "moves": [pod(0, Some("w1"), Some("w2"))], "starts": [pod(7, None, Some("new-1"))],
            "stops": [], "waits_for_data": [], "notes": ["a mass loss"],
            "stuck": [{"pod": pod(1, Some("w1"), None), "why": "no other node takes it", "change": "add one"}],
            "nodes": [node("w1", amounts(2), 0, true), node("w2", amounts(0), 1, false),
                node("w3", amounts(3), 3, false), node("new-1", serde_json::Value::Null, 1, false)],
        }))
        .unwrap();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = describe(&plan).lines().map(words).collect();
        assert_eq!(lines[..3], ["pods: 1 move, 1 start, 1 do not fit", "note: a mass loss", ""]);
        for line in ["web-0 w1 w2", "web-7 - new-1", "web-1 - no other node takes it add one"] {
            assert!(lines.iter().any(|one| one == line), "{line}: {lines:?}");
        }
        assert!(lines.iter().any(|line| line.starts_with("w1 (lost) 2 -> 0 of 10")), "{lines:?}");
        assert!(lines.iter().any(|line| line.starts_with("new-1 (new) 0 -> 1 of 10")), "{lines:?}");
        assert!(!lines.iter().any(|line| line.starts_with("w3")), "{lines:?}");
    }
}
