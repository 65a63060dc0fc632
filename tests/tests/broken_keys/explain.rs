//! Explains why a pod was stopped: a starved test process fences pods as a slow machine does.

use std::time::Duration;

use kubeleet_tests::in_process::InProcessCluster;
use kubeleet_tests::kept_log;
use model::ids::PodId;

const MAX_LINES: usize = 60;

/// The text contains a `Running`, or a finding.
pub(crate) async fn explain_named_in(cluster: &InProcessCluster, text: &str) -> String {
    let of_finding = text.split("pod:").nth(1).and_then(|rest| PodId::new(rest.split(": ").next()?).ok());
    if let Some(pod) = of_finding {
        let node = cluster.redis_keyspace().await.field(&format!("pod:{pod}"), "node");
        return explain(cluster, &pod, &format!("{node}/")).await;
    }
    let field = |name: &str| text.split(&format!("{name}: \"")).nth(1)?.split('"').next();
    let Some((pod, node)) = field("pod").zip(field("node")) else { return String::new() };
    let Ok(pod) = PodId::new(pod) else { return String::new() };
    let listed: Vec<Vec<u8>> =
        cluster.redis.try_cli(&["SMEMBERS", &format!("cs:{node}")]).await.unwrap_or_default();
    let is_named = |raw: &Vec<u8>| String::from_utf8_lossy(raw).contains(pod.as_str());
    let is_listed = listed.iter().any(is_named);
    format!("  in cs:{node}: {is_listed}\n{}", explain(cluster, &pod, &format!("{node}/")).await)
}

pub(crate) async fn explain(cluster: &InProcessCluster, pod: &PodId, handle: &str) -> String {
    let node = handle.split('/').next().unwrap_or_default();
    let record: Vec<String> =
        cluster.redis.try_cli(&["HGETALL", &format!("pod:{pod}")]).await.unwrap_or_default();
    let parts = [
        ("silence", vec![silences(cluster)]),
        ("record", vec![record.join(" ")]),
        ("events", events_about(cluster, pod.as_str()).await),
        ("log of the pod", kept_log::lines_with(&[pod.as_str()])),
        ("log of the node", kept_log::lines_with(&[&format!("node={node} "), &format!("node={node}\n")])),
    ];
    let told = parts.into_iter().map(|(title, lines)| {
        let skipped = lines.len().saturating_sub(MAX_LINES);
        format!("  {title}:\n    {}", lines[skipped..].join("\n    "))
    });
    told.collect::<Vec<_>>().join("\n")
}

fn silences(cluster: &InProcessCluster) -> String {
    let mut pauses: Vec<(Duration, String)> =
        cluster.engine.longest_pauses().into_iter().map(|(node, pause)| (pause, node.to_string())).collect();
    pauses.sort_unstable();
    let longest = pauses.iter().rev().take(3).map(|(pause, node)| format!("{node} {pause:.1?}"));
    format!("longest pauses between heartbeats: {}", longest.collect::<Vec<_>>().join(", "))
}

async fn events_about(cluster: &InProcessCluster, word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for stream in ["broken:events", "events"] {
        let entries: Vec<(String, Vec<String>)> =
            cluster.redis.try_cli(&["XRANGE", stream, "-", "+"]).await.unwrap_or_default();
        for (id, fields) in entries {
            // A batch has a line for each pod.
            let is_batch = fields.iter().any(|field| field == "pods");
            let told: Vec<&str> = fields
                .iter()
                .flat_map(|field| field.lines())
                .filter(|l| !is_batch || l.len() < 40 || l.contains(word))
                .collect();
            if fields.iter().any(|field| field.contains(word)) {
                found.push(format!("{id} {}", told.join(" ")));
            }
        }
    }
    found
}
