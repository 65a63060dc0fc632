//! The cluster's status in words.

use api::dto::{DurabilityState, DurabilityView, StatusView};

use super::story::Story;

/// How the cluster is, on one screen.
pub(crate) fn tell(status: &StatusView) -> String {
    let (redis, nodes, queues) = (&status.redis, &status.nodes, &status.queues);
    let mut story = Story::default();
    let connected = if redis.connected { "connected" } else { "NOT CONNECTED" };
    let master = if redis.master.is_empty() { String::new() } else { format!(", master {}", redis.master) };
    story.line("Redis", format!("{connected}{master}")).line("", &redis.detail);
    if let Some(durability) = &status.durability {
        story.line("Last write", durability_words(durability));
    }
    if !redis.connected {
        // The numbers are zero because nobody knows them.
        return story.section("Problems", status.problems.iter().cloned()).tell();
    }
    story
        .line("Schedulers", status.schedulers.to_string())
        .line(
            "Nodes",
            format!("{} of {} ready{}", nodes.ready, nodes.total, others(nodes.cordoned, nodes.dead)),
        )
        .line("Services", status.services.to_string())
        .line("Pods", pods(status))
        .line(
            "Queues",
            format!(
                "{} waiting, {} in flight, {} unschedulable, {} dead letters",
                queues.waiting, queues.in_flight, queues.unschedulable, queues.dead
            ),
        );
    story.section("Problems", status.problems.iter().cloned());
    story.tell()
}

/// Whether a write would survive the loss of Redis' master.
pub(crate) fn durability_words(durability: &DurabilityView) -> String {
    if !durability.message.is_empty() {
        return durability.message.clone();
    }
    let (replicas, known) = (durability.replicas, durability.known);
    match durability.state {
        DurabilityState::Confirmed => format!("confirmed by all {known} replicas"),
        DurabilityState::Unconfirmed => {
            format!("stored, and confirmed by {replicas} of {known} replicas so far")
        }
        DurabilityState::SingleMachine => "stored on one machine: Redis has no replicas".to_owned(),
    }
}

fn others(cordoned: u64, dead: u64) -> String {
    let parts = [(cordoned, "cordoned"), (dead, "dead")];
    parts.into_iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!(", {n} {word}")).collect()
}

fn pods(status: &StatusView) -> String {
    let counts = status.pods.iter().filter(|(_, n)| **n > 0).map(|(phase, n)| format!("{n} {phase}"));
    let text = counts.collect::<Vec<_>>().join(", ");
    if text.is_empty() { "none".to_owned() } else { text }
}
