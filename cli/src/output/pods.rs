//! Pods in words.

use api::dto::{PodView, ServiceView};
use common::event::ClusterEvent;
use common::lifecycle::Phase;
use jiff::Timestamp;

use super::story::Story;
use super::{Listed, events, services, words};

impl Listed for PodView {
    fn titles(wide: bool) -> Vec<&'static str> {
        let mut titles = vec!["NAME", "PHASE", "REASON", "RESTARTS", "NODE", "AGE", "ID"];
        if wide {
            titles.extend(["IMAGE", "ADDRESS", "GENERATION", "ATTEMPTS", "MESSAGE"]);
        }
        titles
    }

    fn cells(&self, wide: bool, now: Timestamp) -> Vec<String> {
        let id = if wide { self.uuid.as_str() } else { self.uuid.short() };
        let mut cells = vec![
            self.called(),
            self.phase.to_string(),
            self.reason.clone(),
            self.restarts.to_string(),
            self.node.as_ref().map(ToString::to_string).unwrap_or_default(),
            words::age(&self.created_at, now),
            id.to_owned(),
        ];
        if wide {
            cells.extend([
                self.image.clone(),
                self.address.clone(),
                self.generation.to_string(),
                self.attempts.to_string(),
                words::shorten(&self.message, 80),
            ]);
        }
        cells
    }

    fn name(&self) -> String {
        format!("pod/{}", self.uuid)
    }
}

/// What people call a pod.
pub(crate) trait Called {
    /// `web-0`: its name and its place among its service's pods.
    fn called(&self) -> String;
}

impl Called for PodView {
    fn called(&self) -> String {
        format!("{}-{}", self.name, self.replica)
    }
}

/// One line: who it is and how it is.
pub(crate) fn line(pod: &PodView) -> String {
    let mut text = format!("{} {} {}", pod.called(), pod.uuid.short(), pod.phase);
    text.extend(pod.node.iter().map(|node| format!(" on {node}")));
    text.push_str(&complaint(&pod.reason, &pod.message));
    text
}

/// Everything about a pod. `service` is its service, when it is of the same generation.
pub(crate) fn describe(
    pod: &PodView,
    service: Option<&ServiceView>,
    last: &[ClusterEvent],
    now: Timestamp,
) -> String {
    let mut story = Story::default();
    let ago = |time: &str| format!("{time} ({} ago)", words::age(time, now));
    story
        .line("Name", pod.called())
        .line("Id", pod.uuid.as_str())
        .line("Phase", format!("{}, {}", pod.phase, meaning(pod)))
        .line("Reason", &pod.reason)
        .line("Message", &pod.message)
        .line("Since", ago(&pod.since))
        .line("Created", ago(&pod.created_at))
        .line("Service", owner(pod))
        .line("Node", pod.node.as_ref().map(ToString::to_string).unwrap_or_default())
        .line("Address", &pod.address)
        .line("Assignment", pod.assignment.as_ref().map(ToString::to_string).unwrap_or_default())
        .line("Attempts", pod.attempts.to_string())
        .line("Restarts", pod.restarts.to_string())
        .line("Exit code", pod.exit_code.map(|code| code.to_string()).unwrap_or_default())
        .line("Reserves", reserves(pod));
    match service {
        Some(service) => story.section("Container", service.containers.iter().flat_map(services::container)),
        None => story.line("Image", &pod.image),
    };
    story.section("Why no node takes it", refusals(pod));
    story.section("Events, the last at the end", last.iter().map(events::line));
    story.section("The same in Redis", [format!("redis-cli HGETALL pod:{}", quoted(pod.uuid.as_str()))]);
    story.tell()
}

fn owner(pod: &PodView) -> String {
    match &pod.service {
        Some(service) => format!("{service}, generation {}", pod.generation),
        None => "none: somebody pushed it".to_owned(),
    }
}

fn reserves(pod: &PodView) -> String {
    let cores = (pod.cpu_millis > 0).then(|| format!("{} cores", words::cores(pod.cpu_millis)));
    let memory = (pod.memory_bytes > 0).then(|| words::bytes(pod.memory_bytes));
    let parts: Vec<String> = cores.into_iter().chain(memory).collect();
    if parts.is_empty() { "neither CPU nor memory".to_owned() } else { parts.join(", ") }
}

fn refusals(pod: &PodView) -> Vec<String> {
    let mut lines = Vec::new();
    for refusal in &pod.refusals {
        lines.push(format!("{} ({})", refusal.reason, words::count(refusal.count as u64, "node")));
        lines.extend(refusal.nodes.iter().map(|node| format!("  {}: {}", node.node, node.detail)));
        let unnamed = refusal.count.saturating_sub(refusal.nodes.len());
        if unnamed > 0 && !refusal.nodes.is_empty() {
            lines.push(format!("  and {} more", words::count(unnamed as u64, "node")));
        }
    }
    lines
}

/// What the phase means for this pod.
fn meaning(pod: &PodView) -> &'static str {
    match pod.phase {
        Phase::Pending if pod.refusals.is_empty() => "it waits for a scheduler to give it to a node",
        Phase::Pending => "it fits no node right now, and is tried again when something changes",
        Phase::Assigned => "its node has yet to say that it runs",
        Phase::Running if pod.reason.is_empty() => "its node says that it runs",
        Phase::Running => "its node has it, and it is not well",
        Phase::Stopping => "its node was asked to stop it",
        Phase::Stopped => "it was stopped because somebody asked",
        Phase::Succeeded => "it ended by itself with success",
        Phase::Failed => "it ended badly, or could never be started",
    }
}

/// ` (Reason: message)`, as far as there is something to complain of.
pub(crate) fn complaint(reason: &str, message: &str) -> String {
    match (reason.is_empty(), message.is_empty()) {
        (true, true) => String::new(),
        (false, true) => format!(" ({reason})"),
        (true, false) => format!(" ({})", words::shorten(message, 160)),
        (false, false) => format!(" ({reason}: {})", words::shorten(message, 160)),
    }
}

/// As a shell takes it: ids of pushed pods may hold anything printable.
fn quoted(text: &str) -> String {
    let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if plain { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
