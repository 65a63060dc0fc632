//! Nodes as table rows and descriptions.

use api_types::{NamedResourceView, NodeView, PodView};
use jiff::Timestamp;
use model::event::ClusterEvent;
use model::node::{NodeKind, NodeState, Psi, Resources};

use super::{events, pods};
use crate::describe_layout::DescribeLayout;
use crate::{TableRow, Titles, humanize};

impl TableRow for NodeView {
    const TITLES: Titles = &["NAME", "STATUS", "KIND", "PODS", "CPUS", "MEMORY", "HEARTBEAT", "AGE"];
    const WIDE_TITLES: Titles =
        &["RUNTIME", "VERSION", "PQ/RQ/CS", "PRESSURE", "LABELS", "RESOURCES", "SHARED", "MESSAGE"];

    fn cells(&self, _wide: bool, now: Timestamp) -> Vec<String> {
        let (used, capacity) = (&self.used, &self.capacity);
        let queues = &self.queues;
        vec![
            self.name.to_string(),
            status_words(self),
            kind_words(self).to_owned(),
            format!("{}/{}", used.pods, capacity.pods),
            format!("{}/{}", humanize::cores(used.cpu_millis), humanize::cores(capacity.cpu_millis)),
            format!("{}/{}", humanize::bytes(used.memory_bytes), humanize::bytes(capacity.memory_bytes)),
            humanize::age(&self.last_heartbeat, now),
            humanize::age(&self.created_at, now),
            format!("{} {}", self.runtime, self.engine_version).trim().to_owned(),
            self.version.clone(),
            format!("{}/{}/{}", queues.pending, queues.starting, queues.running),
            self.psi.as_ref().map(pressure).unwrap_or_default(),
            humanize::labels(&self.labels).join(","),
            resources(self).join(","),
            shared_word(self).to_owned(),
            humanize::shorten_message(message(self), 80),
        ]
    }

    fn name(&self) -> String {
        format!("node/{}", self.name)
    }

    fn watched(&self) -> Self {
        Self { last_heartbeat: self.registered_at.clone(), psi: None, ..self.clone() }
    }
}

fn status_words(node: &NodeView) -> String {
    let mut text = match (node.state, node.ready) {
        (NodeState::Dead, _) => "dead".to_owned(),
        (NodeState::Alive, true) => "ready".to_owned(),
        (NodeState::Alive, false) => "not-ready".to_owned(),
    };
    if node.drain.is_some() {
        text.push_str(",draining");
    } else if node.cordoned {
        text.push_str(",cordoned");
    }
    if node.disk_problem.is_some() {
        text.push_str(",disk-pressure");
    }
    text
}

fn kind_words(node: &NodeView) -> &'static str {
    match (node.kind, node.fenceable) {
        (NodeKind::Kubeleet, true) => "kubeleet",
        (NodeKind::Kubeleet, false) => "kubeleet,unfenced",
        (NodeKind::External, _) => "guest,unfenced",
    }
}

pub fn pressure(psi: &Psi) -> String {
    format!("cpu {:.0}% mem {:.0}% io {:.0}%", psi.cpu_some, psi.memory_some, psi.io_some)
}

pub fn describe(node: &NodeView, pods: &[PodView], latest: &[ClusterEvent], now: Timestamp) -> String {
    let with_age = |time: &str| format!("{time} ({} ago)", humanize::age(time, now));
    let (used, capacity, queues) = (&node.used, &node.capacity, &node.queues);
    let cpus = (humanize::cores(used.cpu_millis), humanize::cores(capacity.cpu_millis));
    let memory = (humanize::bytes(used.memory_bytes), humanize::bytes(capacity.memory_bytes));
    let mut layout = DescribeLayout::default();
    layout
        .field("Name", node.name.as_str())
        .field("Status", format!("{}: {}", status_words(node), status_meaning(node)))
        .field("Engine error", node.engine_problem.as_deref().unwrap_or_default())
        .field("Disk pressure", node.disk_problem.as_deref().unwrap_or_default())
        .fields("Problems", node.problems.clone())
        .field("Kind", kind_meaning(node))
        .fields("Labels", humanize::labels(&node.labels))
        .field("Runtime", format!("{} {}", node.runtime, node.engine_version).trim())
        .field("Engine id", node.engine_id.as_deref().unwrap_or_default())
        .field("Version", &node.version)
        .field("Heartbeat", with_age(&node.last_heartbeat))
        .field("Created", with_age(&node.created_at))
        .field("Registered", with_age(&node.registered_at))
        .field("Pods", format!("{} of {}", used.pods, capacity.pods))
        .field("CPUs", format!("{} of {} reserved", cpus.0, cpus.1))
        .field("Memory", format!("{} of {} reserved", memory.0, memory.1))
        .field("Processes", processes(node))
        .field("Disk", disk(node))
        .fields("Resources", node.resources.iter().map(|(name, one)| with_pods(name, one)))
        .field("For the system", kept_words(&node.reserved))
        .field("Shared volumes", node.shared_volumes.as_deref().unwrap_or_default())
        .field("Pressure", node.psi.as_ref().map_or_else(|| "not reported".to_owned(), pressure))
        .field(
            "Queues",
            format!("{} pending, {} starting, {} running", queues.pending, queues.starting, queues.running),
        );
    layout.section("Pods", pods.iter().map(pods::line));
    layout.section("Events (oldest first)", latest.iter().map(events::line));
    layout.section(
        "Keys in Redis",
        [
            format!("redis-cli HGETALL node:{}", node.name),
            format!("redis-cli LRANGE pq:{} 0 -1", node.name),
            format!("redis-cli LRANGE rq:{} 0 -1", node.name),
            format!("redis-cli SMEMBERS cs:{}", node.name),
        ],
    );
    layout.finish()
}

/// Whether the node takes pods with shared volumes; empty without a directory for them.
fn shared_word(node: &NodeView) -> &'static str {
    match node.shared_volumes.as_deref() {
        None => "",
        Some("ready") => "ready",
        Some(_) => "refused",
    }
}

fn message(node: &NodeView) -> &str {
    let refused = node.shared_volumes.as_deref().filter(|state| *state != "ready");
    let other = node.problems.first().map(String::as_str);
    node.engine_problem.as_deref().or(node.disk_problem.as_deref()).or(refused).or(other).unwrap_or_default()
}

fn processes(node: &NodeView) -> String {
    match node.capacity.pids {
        0 => String::new(),
        offered => format!("{} of {offered} reserved", node.used.pids),
    }
}

fn disk(node: &NodeView) -> String {
    match node.capacity.disk_bytes {
        0 => String::new(),
        offered => {
            let (used, offered) = (humanize::bytes(node.used.disk_bytes), humanize::bytes(offered));
            format!("{used} of {offered} reserved")
        }
    }
}

/// Lists the ids in use of each named resource: `gpu 1/2`.
fn resources(node: &NodeView) -> Vec<String> {
    let count =
        |(name, one): (&String, &NamedResourceView)| format!("{name} {}/{}", one.used.len(), one.ids.len());
    node.resources.iter().map(count).collect()
}

fn with_pods(name: &str, resource: &NamedResourceView) -> String {
    let has_pod = |id: &String| match resource.used.get(id) {
        Some(pod) => format!("{id} ({pod})"),
        None => id.clone(),
    };
    let former = resource.used.iter().filter(|(id, _)| !resource.ids.contains(id));
    let former = former.map(|(id, pod)| format!("{id} ({pod}, not declared any more)"));
    let ids: Vec<String> = resource.ids.iter().map(has_pod).chain(former).collect();
    format!("{name}: {}", ids.join(", "))
}

fn kept_words(kept: &Resources) -> String {
    let parts = [
        (kept.cpu_millis, format!("{} CPUs", humanize::cores(kept.cpu_millis))),
        (kept.memory_bytes, format!("{} of memory", humanize::bytes(kept.memory_bytes))),
        (kept.pids, format!("{} processes", kept.pids)),
        (kept.disk_bytes, format!("{} of disk", humanize::bytes(kept.disk_bytes))),
    ];
    let parts = parts.into_iter().filter(|(amount, _)| *amount > 0).map(|(_, text)| text);
    parts.collect::<Vec<_>>().join(", ")
}

fn status_meaning(node: &NodeView) -> &'static str {
    match (node.state, node.ready, node.cordoned) {
        (NodeState::Dead, ..) => "declared dead; its pods go back to the scheduling queue",
        (NodeState::Alive, _, true) if node.drain.is_some() => {
            "its pods move to other nodes; `kubeleet drain NODE --dry-run` shows where, `uncordon` ends it"
        }
        (NodeState::Alive, _, true) => "gets no new pods until `kubeleet node uncordon`",
        (NodeState::Alive, false, _) => {
            "its heartbeat is late or its engine has a problem; it gets no new pods"
        }
        (NodeState::Alive, true, false) => "accepts pods",
    }
}

fn kind_meaning(node: &NodeView) -> &'static str {
    match node.kind {
        NodeKind::Kubeleet => "kubeleet worker",
        NodeKind::External => {
            "external worker (guest): another program that serves this node's queues.\n\
             It cannot be fenced: when its heartbeat stops, its pods start on other nodes\n\
             although it may still run them"
        }
    }
}
