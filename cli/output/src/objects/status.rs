//! State of the cluster.

use api_types::{DurabilityState, DurabilityView, PauseView, RedisMemoryView, RedundancyView, StatusView};

use model::pod::lifecycle::Phase;

use crate::describe_layout::DescribeLayout;
use crate::humanize;

pub fn describe(status: &StatusView) -> String {
    let (redis, nodes, queues) = (&status.redis, &status.nodes, &status.queues);
    let mut layout = DescribeLayout::default();
    let connection = match (redis.connected, redis.writable) {
        (true, true) => "connected",
        (true, false) => "TAKES NO WRITES",
        (false, _) => "NOT CONNECTED",
    };
    let master = if redis.master.is_empty() { String::new() } else { format!(", master {}", redis.master) };
    let server = if redis.server.is_empty() { String::new() } else { format!(" ({})", redis.server) };
    layout.field("Redis", format!("{connection}{master}{server}")).field("", &redis.detail);
    if let Some(durability) = &status.durability {
        layout.field("Durability", durability_text(durability));
    }
    if !redis.connected {
        // Without Redis the counts are unknown, and the API sends zeros.
        return layout.section("Problems", status.problems.iter().cloned()).finish();
    }
    layout
        .field("Redundancy", status.redundancy.map(redundancy).unwrap_or_default())
        .field("Redis memory", redis.memory.map(memory).unwrap_or_default())
        .field("Pause", status.pause.as_ref().map(pause).unwrap_or_default())
        .field("Schedulers", status.schedulers.to_string())
        .field(
            "Nodes",
            format!("{} of {} ready{}", nodes.ready, nodes.total, other_nodes(nodes.cordoned, nodes.dead)),
        )
        .field("Services", status.services.to_string())
        .field("Pods", pods(status))
        .field(
            "Queues",
            format!(
                "{} waiting, {} in flight, {} unschedulable, {}",
                queues.waiting,
                queues.in_flight,
                queues.unschedulable,
                humanize::count(queues.dead, "dead letter")
            ),
        );
    layout.section("Problems", status.problems.iter().cloned());
    layout.section(
        "Broken keys",
        status.broken.iter().map(|broken| format!("{}: {}", broken.key, broken.problem)),
    );
    layout.finish()
}

pub fn durability_text(durability: &DurabilityView) -> String {
    if !durability.message.is_empty() {
        return durability.message.clone();
    }
    let (replicas, known) = (durability.replicas, durability.known);
    match durability.state {
        DurabilityState::Confirmed => format!("last write confirmed by all {known} replicas of Redis"),
        DurabilityState::Unconfirmed => {
            format!("last write stored, but confirmed by only {replicas} of {known} replicas of Redis so far")
        }
        DurabilityState::SingleMachine => "one Redis, no replicas".to_owned(),
    }
}

/// Empty if there are none.
fn redundancy(redundancy: RedundancyView) -> String {
    let RedundancyView { replicas, replicas_attached, sentinels, sentinels_answering, can_fail_over } =
        redundancy;
    let of_replicas = (replicas > 0).then(|| format!("{replicas_attached} of {replicas} replicas attached"));
    let of_sentinels =
        (sentinels > 0).then(|| format!("{sentinels_answering} of {sentinels} Sentinels answer"));
    let no_failover = (can_fail_over == Some(false)).then(|| "NO FAILOVER POSSIBLE".to_owned());
    let parts: Vec<String> = [of_replicas, of_sentinels, no_failover].into_iter().flatten().collect();
    parts.join(", ")
}

fn pause(pause: &PauseView) -> String {
    let PauseView { no_deaths_for_seconds, no_starts_for_seconds, .. } = pause;
    let deaths = (*no_deaths_for_seconds > 0)
        .then(|| format!("no node is declared dead for another {no_deaths_for_seconds} s"));
    let starts =
        (*no_starts_for_seconds > 0).then(|| format!("no pod starts for another {no_starts_for_seconds} s"));
    let pauses: Vec<String> = deaths.into_iter().chain(starts).collect();
    format!("Redis was restarted or its master changed: {}", pauses.join(", "))
}

fn memory(memory: RedisMemoryView) -> String {
    let used = humanize::bytes(memory.used_bytes);
    match (memory.limit_bytes, memory.headroom_bytes) {
        (Some(limit), headroom) => {
            let room = headroom.filter(|bytes| *bytes > 0).map_or_else(
                || "nothing can be added".to_owned(),
                |bytes| format!("{} can be added", humanize::bytes(bytes)),
            );
            format!("{used} of {}, {room}", humanize::bytes(limit))
        }
        (None, _) => format!("{used}, no limit (maxmemory)"),
    }
}

fn other_nodes(cordoned: u64, dead: u64) -> String {
    let counts = [(cordoned, "cordoned"), (dead, "dead")];
    counts.into_iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!(", {n} {word}")).collect()
}

fn pods(status: &StatusView) -> String {
    let ready = |phase: Phase, count: u64| match phase {
        Phase::Running => count.saturating_sub(status.pods_not_ready),
        _ => count,
    };
    let phases = status.pods.iter().map(|(phase, count)| (ready(*phase, *count), phase.as_str()));
    let counts = phases.chain([(status.pods_not_ready, "not ready")]).filter(|(count, _)| *count > 0);
    let text = counts.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(", ");
    if text.is_empty() { "none".to_owned() } else { text }
}
