//! Pods as table rows, lines and descriptions.

use api_types::{PodView, ServiceView};
use jiff::Timestamp;
use model::event::ClusterEvent;
use model::pod::lifecycle::Phase;
use model::pod::{ContainerProgress, ContainerStatus, EndedRun};
use model::time::rfc3339;

use super::{containers, events};
use crate::describe_layout::DescribeLayout;
use crate::{TableRow, Titles, humanize};

const MAX_MESSAGE_LENGTH: usize = 160;

impl TableRow for PodView {
    const TITLES: Titles = &["NAME", "PHASE", "REASON", "RESTARTS", "NODE", "AGE", "ID", "PORTS"];
    const WIDE_TITLES: Titles = &["IMAGE", "ADDRESS", "GENERATION", "ATTEMPTS", "MESSAGE"];

    fn cells(&self, wide: bool, now: Timestamp) -> Vec<String> {
        let id = if wide { self.uuid.as_str() } else { self.uuid.short() };
        vec![
            indexed_name(self),
            self.phase.to_string(),
            self.reason.clone(),
            self.restarts.to_string(),
            self.node.as_ref().map(ToString::to_string).unwrap_or_default(),
            humanize::age(&self.created_at, now),
            id.to_owned(),
            ports(self),
            self.image.clone(),
            self.address.clone(),
            self.generation.to_string(),
            self.attempts.to_string(),
            humanize::shorten_message(&self.message, 80),
        ]
    }

    /// The replacement of a stopped pod has its name, and names of pushed pods may repeat: both are named by
    /// uuid.
    fn name(&self) -> String {
        if self.service.is_none() || self.phase == Phase::Stopped {
            return self.unique_name();
        }
        format!("pod/{}", indexed_name(self))
    }

    fn unique_name(&self) -> String {
        format!("pod/{}", self.uuid)
    }
}

/// `web-0`: the pod's name and its index in the service.
pub fn indexed_name(pod: &PodView) -> String {
    format!("{}-{}", pod.name, pod.replica)
}

pub fn line(pod: &PodView) -> String {
    let mut text = format!("{} {} {}", indexed_name(pod), pod.uuid.short(), pod.phase);
    text.extend(pod.node.iter().map(|node| format!(" on {node}")));
    if !pod.ports.is_empty() {
        text.push_str(&format!(", {}", ports(pod)));
    }
    text.push_str(&suffix(&pod.reason, &pod.message, usize::MAX));
    text
}

fn ports(pod: &PodView) -> String {
    let ports: Vec<String> = pod.ports.iter().map(ToString::to_string).collect();
    ports.join(", ")
}

/// `service` must be of the pod's generation.
pub fn describe(
    pod: &PodView,
    service: Option<&ServiceView>,
    latest: &[ClusterEvent],
    now: Timestamp,
) -> String {
    let mut layout = DescribeLayout::default();
    let with_age = |time: &str| format!("{time} ({} ago)", humanize::age(time, now));
    layout
        .field("Name", indexed_name(pod))
        .field("Id", pod.uuid.as_str())
        .field("Phase", format!("{}: {}", pod.phase, phase_meaning(pod)))
        .field("Reason", &pod.reason)
        .field("Message", &pod.message)
        .field("Since", with_age(&pod.since))
        .field("Created", with_age(&pod.created_at))
        .field("Service", owner(pod))
        .field("Node", pod.node.as_ref().map(ToString::to_string).unwrap_or_default())
        .field("Address", &pod.address)
        .field("Ports", ports(pod))
        .fields("Image content", pod.images.iter().map(containers::content))
        .field("Assignment", pod.assignment.as_ref().map(ToString::to_string).unwrap_or_default())
        .field("Attempts", pod.attempts.to_string())
        .field("Restarts", pod.restarts.to_string())
        .field("Exit code", pod.exit_code.map(|code| code.to_string()).unwrap_or_default())
        .field("Reserves", reservation(pod))
        .fields("Resources", pod.resources.iter().map(|(name, ids)| format!("{name} {}", ids.join(","))));
    match service {
        Some(service) => {
            layout.section("Container", service.pod.containers.iter().flat_map(containers::lines))
        }
        None => layout.field("Image", &pod.image),
    };
    layout.section("Containers of the pod", pod.containers.iter().map(container_line));
    layout
        .section("Runs that have ended (oldest first)", pod.runs.iter().flat_map(|run| run_lines(run, now)));
    layout.section("Why it does not fit", refusals(pod));
    layout.section("Events (oldest first)", latest.iter().map(events::line));
    layout.section("Keys in Redis", [format!("redis-cli HGETALL pod:{}", shell_quoted(pod.uuid.as_str()))]);
    layout.finish()
}

/// `cache: running, 2 restarts (CrashLoopBackOff: …)`.
fn container_line(container: &ContainerStatus) -> String {
    let state = match container.state {
        ContainerProgress::Waiting => "waiting".to_owned(),
        ContainerProgress::Running => "running".to_owned(),
        ContainerProgress::Ended => match container.exit_code {
            Some(code) => format!("ended with exit code {code}"),
            None => "ended".to_owned(),
        },
    };
    let restarts = (container.restarts > 0)
        .then(|| format!(", {}", humanize::count(u64::from(container.restarts), "restart")));
    let suffix = suffix(&container.reason, &container.message, usize::MAX);
    format!("{}: {state}{}{suffix}", container.name, restarts.unwrap_or_default())
}

fn run_lines(run: &EndedRun, now: Timestamp) -> Vec<String> {
    let container = run.container.as_ref().map_or_else(String::new, |name| format!("{name} "));
    let how = match (run.out_of_memory, run.signal()) {
        (true, _) => "used more memory than its limit".to_owned(),
        (false, Some(signal)) => format!("exit code {} (signal {signal})", run.exit_code),
        (false, None) => format!("exit code {}", run.exit_code),
    };
    let after = run.ran_for_ms.map(|ms| format!(" after {}", humanize::milliseconds(ms)));
    let age = humanize::age(&rfc3339(run.ended_at), now);
    let first = format!("{container}{how}{} on {}, {age} ago", after.unwrap_or_default(), run.node);
    let output = run.last_output.lines().map(|line| format!("  | {}", humanize::printable(line)));
    std::iter::once(first).chain(output).collect()
}

fn owner(pod: &PodView) -> String {
    match &pod.service {
        Some(service) => format!("{service}, generation {}", pod.generation),
        None => "none: the pod was pushed to a queue".to_owned(),
    }
}

fn reservation(pod: &PodView) -> String {
    let cores = (pod.cpu_millis > 0).then(|| format!("{} cores", humanize::cores(pod.cpu_millis)));
    let memory = (pod.memory_bytes > 0).then(|| humanize::bytes(pod.memory_bytes));
    let pids = (pod.pids > 0).then(|| format!("{} processes", pod.pids));
    let disk = (pod.disk_bytes > 0).then(|| format!("{} of disk", humanize::bytes(pod.disk_bytes)));
    let parts: Vec<String> = cores.into_iter().chain(memory).chain(pids).chain(disk).collect();
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

fn refusals(pod: &PodView) -> Vec<String> {
    let mut lines = Vec::new();
    for refusal in &pod.refusals {
        lines.push(format!("{} ({})", refusal.reason, humanize::count(refusal.count as u64, "node")));
        lines.extend(refusal.nodes.iter().map(|node| format!("  {}: {}", node.node, node.detail)));
        let unnamed = refusal.count.saturating_sub(refusal.nodes.len());
        if unnamed > 0 && !refusal.nodes.is_empty() {
            let more = if unnamed == 1 { "node" } else { "nodes" };
            lines.push(format!("  and {unnamed} more {more}"));
        }
    }
    lines
}

fn phase_meaning(pod: &PodView) -> &'static str {
    match pod.phase {
        Phase::Pending if pod.refusals.is_empty() => "waiting for a scheduler to assign it to a node",
        Phase::Pending => "fits no node right now; tried again when something changes",
        Phase::Assigned => "starting on its node",
        Phase::Running if pod.reason.is_empty() => "its container runs",
        Phase::Running => "its node reports a problem, see Reason",
        Phase::Stopping => "its node was asked to stop it",
        Phase::Stopped => "stopped on request",
        Phase::Succeeded => "its container exited with success",
        Phase::Failed => "its container exited with an error, or could not be started",
    }
}

/// ` (Reason: message)` for progress lines; empty without both.
pub fn reason_suffix(reason: &str, message: &str) -> String {
    suffix(reason, message, MAX_MESSAGE_LENGTH)
}

fn suffix(reason: &str, message: &str, max_message: usize) -> String {
    let message = humanize::shorten_message(message, max_message);
    match (reason.is_empty(), message.is_empty()) {
        (true, true) => String::new(),
        (false, true) => format!(" ({reason})"),
        (true, false) => format!(" ({message})"),
        (false, false) => format!(" ({reason}: {message})"),
    }
}

/// The uuids of pushed pods may contain any printable character.
fn shell_quoted(text: &str) -> String {
    let is_plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if is_plain { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
