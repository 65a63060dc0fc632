//! Where a pod could run, and why it is where it is: `explain pod`.

use api_types::{DecisionView, JudgedNode, LoadTermView, PodPlacementView};
use model::pod::lifecycle::Phase;
use model::spec::PlacementProfile;

use crate::table;

pub fn describe(of: &PodPlacementView) -> String {
    let rows = of.nodes.iter().map(row).collect();
    let shown = of.nodes.len() as u64;
    let more = of.node_count.saturating_sub(shown);
    let more = if more == 0 { String::new() } else { format!("and {more} more nodes\n") };
    let change = if of.change.is_empty() { String::new() } else { format!("{}\n", of.change) };
    let profile = match of.profile {
        PlacementProfile::Default => String::new(),
        profile => format!("the nodes are compared by the profile {profile}\n"),
    };
    let decision = match (&of.decision, &of.node) {
        (Some(decision), _) => placed(decision),
        (None, Some(_)) => "\nThe decision that placed it is not kept.\n".to_owned(),
        (None, None) => String::new(),
    };
    format!("{}\n{profile}{change}\n{}\n{more}{decision}", summary(of), table::render(COLUMNS, rows))
}

const COLUMNS: &[&str] = &["NODE", "FITS", "LOAD", "WHY"];

/// As it was decided.
fn placed(decision: &DecisionView) -> String {
    let DecisionView { at, node_count, fitting, refused, .. } = decision;
    let profile = match decision.profile {
        PlacementProfile::Default => String::new(),
        profile => format!(" by the profile {profile}"),
    };
    let refused: Vec<String> = refused.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let refused = if refused.is_empty() { String::new() } else { format!(": {}", refused.join(", ")) };
    let changed = match decision.is_same_now {
        true => "",
        false => "Another version decided: this one would choose another node by these facts.\n",
    };
    let rows = decision.nodes.iter().map(row).collect();
    format!(
        "\nPlaced{profile} at {at}, when {fitting} of {node_count} nodes could run it{refused}\n{changed}\n{}\n",
        table::render(COLUMNS, rows)
    )
}

fn summary(of: &PodPlacementView) -> String {
    let pod = format!("{}-{}", of.name, of.replica);
    let best = of.nodes.first().filter(|node| node.objections.is_empty()).map(|node| &node.node);
    let now = match best {
        Some(node) => format!("placed now, it would go to {node}"),
        None => "placed now, it would fit no node".to_owned(),
    };
    match &of.node {
        Some(node) => format!("{pod} is {} on {node}; {now}", of.phase),
        None if of.phase == Phase::Pending && best.is_none() => format!("{pod} is pending: {}", of.message),
        None => format!("{pod} is {}; {now}", of.phase),
    }
}

fn row(judged: &JudgedNode) -> Vec<String> {
    let fits = judged.objections.is_empty();
    let why = if fits {
        judged.terms.iter().map(term).collect::<Vec<_>>().join(", ")
    } else {
        let objections = judged.objections.iter().map(|one| format!("{}: {}", one.reason, one.detail));
        objections.collect::<Vec<_>>().join("; ")
    };
    let fits = if fits { "yes" } else { "no" };
    vec![judged.node.to_string(), fits.to_owned(), points(judged.load), why]
}

fn term(of: &LoadTermView) -> String {
    format!("{} {}", of.term.replace('_', " "), points(of.points))
}

fn points(points: f64) -> String {
    format!("{points:.1}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn nodes_are_shown_with_their_load_or_their_objections() {
        let of: PodPlacementView = serde_json::from_value(serde_json::json!({
            "uuid": "a", "name": "web", "replica": 3, "phase": "pending", "node": null,
            "message": "0/2 nodes are available: 1 Constraint", "change": "", "node_count": 3, "fitting": 1,
            "nodes": [
                {"node": "w2", "load": 36.1, "objections": [], "terms": [
                    {"term": "node_siblings", "value": 1.0, "points": 35.0},
                    {"term": "pod_share", "value": 1.0, "points": 1.0}]},
                {"node": "w1", "load": 1.1, "terms": [], "objections": [
                    {"reason": "Constraint", "detail": "has no label disk"},
                    {"reason": "Cordoned", "detail": "gets no new pods"}]},
            ],
        }))
        .unwrap();
        let text = describe(&of);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        assert!(text.starts_with("web-3 is pending; placed now, it would go to w2\n"), "{text}");
        assert_eq!(lines[3], "w2 yes 36.1 node siblings 35.0, pod share 1.0");
        assert_eq!(lines[4], "w1 no 1.1 Constraint: has no label disk; Cordoned: gets no new pods");
        assert!(text.ends_with("and 1 more nodes\n"), "{text}");
        let decision = serde_json::from_value(serde_json::json!({
            "at": "2026-01-02T03:04:05Z", "profile": "default", "node_count": 9, "fitting": 7,
            "refused": {"Cordoned": 2}, "nodes": [of.nodes[0]], "is_same_now": true,
        }))
        .unwrap();
        let text = describe(&PodPlacementView { decision: Some(decision), ..of.clone() });
        let told = "Placed at 2026-01-02T03:04:05Z, when 7 of 9 nodes could run it: 2 Cordoned\n\n";
        assert!(text.contains(told), "{text}");
        let change = "`kubeleet uncordon w1` lets it run there".to_owned();
        let nowhere = PodPlacementView { nodes: of.nodes[1..].to_vec(), change, ..of.clone() };
        let text = describe(&nowhere);
        assert!(
            text.starts_with(
                "web-3 is pending: 0/2 nodes are available: 1 Constraint\n`kubeleet uncordon w1`"
            ),
            "{text}"
        );
        let packed = PodPlacementView { profile: PlacementProfile::Pack, ..of.clone() };
        let text = describe(&packed);
        assert_eq!(text.lines().nth(1), Some("the nodes are compared by the profile pack"), "{text}");
        let runs = PodPlacementView { node: Some("w1".parse().unwrap()), phase: Phase::Running, ..of };
        let text = describe(&runs);
        assert!(text.starts_with("web-3 is running on w1; placed now, it would go to w2"), "{text}");
        assert!(text.ends_with("not kept.\n"), "{text}");
    }
}
