//! Nodes in words.

use api::dto::{NodeView, PodView};
use common::event::ClusterEvent;
use common::node::{NodeKind, NodeState, Psi};
use jiff::Timestamp;

use super::story::Story;
use super::{Listed, events, pods, services, words};

impl Listed for NodeView {
    fn titles(wide: bool) -> Vec<&'static str> {
        let mut titles = vec!["NAME", "STATUS", "KIND", "PODS", "CPUS", "MEMORY", "HEARTBEAT", "AGE"];
        if wide {
            titles.extend(["RUNTIME", "VERSION", "PQ/RQ/CS", "PRESSURE", "LABELS", "MESSAGE"]);
        }
        titles
    }

    fn cells(&self, wide: bool, now: Timestamp) -> Vec<String> {
        let (used, all) = (&self.used, &self.capacity);
        let mut cells = vec![
            self.name.to_string(),
            status_words(self),
            kind_words(self).to_owned(),
            format!("{}/{}", used.pods, all.pods),
            format!("{}/{}", words::cores(used.cpu_millis), words::cores(all.cpu_millis)),
            format!("{}/{}", words::bytes(used.memory_bytes), words::bytes(all.memory_bytes)),
            words::age(&self.last_heartbeat, now),
            words::age(&self.registered_at, now),
        ];
        if wide {
            let queues = &self.queues;
            cells.extend([
                format!("{} {}", self.runtime, self.engine_version).trim().to_owned(),
                self.version.clone(),
                format!("{}/{}/{}", queues.pending, queues.starting, queues.running),
                self.psi.as_ref().map(pressure).unwrap_or_default(),
                services::pairs(self.labels.iter()).join(","),
                words::shorten(self.engine_problem.as_deref().unwrap_or_default(), 80),
            ]);
        }
        cells
    }

    fn name(&self) -> String {
        format!("node/{}", self.name)
    }
}

fn status_words(node: &NodeView) -> String {
    let mut text = match (node.state, node.ready) {
        (NodeState::Dead, _) => "dead".to_owned(),
        (NodeState::Alive, true) => "ready".to_owned(),
        (NodeState::Alive, false) => "not-ready".to_owned(),
    };
    if node.cordoned {
        text.push_str(",cordoned");
    }
    text
}

fn kind_words(node: &NodeView) -> &'static str {
    match (node.kind, node.fenceable) {
        (NodeKind::Kubeleet, true) => "kubeleet",
        (NodeKind::Kubeleet, false) => "kubeleet,unfenced",
        (NodeKind::Guest, _) => "guest,unfenced",
    }
}

fn pressure(psi: &Psi) -> String {
    format!("cpu {:.0}% mem {:.0}% io {:.0}%", psi.cpu_some, psi.memory_some, psi.io_some)
}

/// Everything about a node and the pods it has.
pub(crate) fn describe(node: &NodeView, has: &[PodView], last: &[ClusterEvent], now: Timestamp) -> String {
    let ago = |time: &str| format!("{time} ({} ago)", words::age(time, now));
    let (used, all, queues) = (&node.used, &node.capacity, &node.queues);
    let mut story = Story::default();
    story
        .line("Name", node.name.as_str())
        .line("Status", format!("{}: {}", status_words(node), meaning(node)))
        .line("Engine says", node.engine_problem.as_deref().unwrap_or_default())
        .line("Kind", kind_meaning(node))
        .lines("Labels", services::pairs(node.labels.iter()))
        .line("Runtime", format!("{} {}", node.runtime, node.engine_version).trim())
        .line("Version", &node.version)
        .line("Heartbeat", ago(&node.last_heartbeat))
        .line("Registered", ago(&node.registered_at))
        .line("Pods", format!("{} of {}", used.pods, all.pods))
        .line(
            "CPUs",
            format!("{} of {} set aside", words::cores(used.cpu_millis), words::cores(all.cpu_millis)),
        )
        .line(
            "Memory",
            format!("{} of {} set aside", words::bytes(used.memory_bytes), words::bytes(all.memory_bytes)),
        )
        .line("Pressure", node.psi.as_ref().map(pressure).unwrap_or_default())
        .line(
            "Queues",
            format!("{} pending, {} starting, {} running", queues.pending, queues.starting, queues.running),
        );
    story.section("Pods", has.iter().map(pods::line));
    story.section("Events, the last at the end", last.iter().map(events::line));
    story.section(
        "The same in Redis",
        [
            format!("redis-cli HGETALL node:{}", node.name),
            format!(
                "redis-cli LRANGE pq:{0} 0 -1; redis-cli LRANGE rq:{0} 0 -1; redis-cli SMEMBERS cs:{0}",
                node.name
            ),
        ],
    );
    story.tell()
}

fn meaning(node: &NodeView) -> &'static str {
    match (node.state, node.ready, node.cordoned) {
        (NodeState::Dead, ..) => "declared dead; its pods go back to the queue",
        (NodeState::Alive, _, true) => "nothing new is placed here until `kubeleet node uncordon`",
        (NodeState::Alive, false, _) => {
            "its heartbeat is late or its engine is ill; nothing new is placed here"
        }
        (NodeState::Alive, true, false) => "it takes pods",
    }
}

fn kind_meaning(node: &NodeView) -> &'static str {
    match node.kind {
        NodeKind::Kubeleet => "a kubeleet worker",
        NodeKind::Guest => {
            "a guest: another program that serves these queues. It can not be fenced: when its heartbeat stops, its \
             pods move although it may still run them"
        }
    }
}
