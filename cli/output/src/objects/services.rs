//! Services as table rows and descriptions.

use api_types::{PodView, RolloutState, RolloutView, ServiceView};
use jiff::Timestamp;
use model::event::ClusterEvent;
use model::spec::{
    Kind, OnDisconnect, Placement, PlacementProfile, Preemption, Preference, Relation, RelationKind, Spread,
    Stateful, UpdateOrder,
};

use super::jobs::{cron_line, job_line};
use super::{containers, events, pods};
use crate::describe_layout::DescribeLayout;
use crate::{TableRow, Titles, humanize};

impl TableRow for ServiceView {
    const TITLES: Titles = &["NAME", "READY", "STATUS", "IMAGE", "AGE"];
    const WIDE_TITLES: Titles = &["MODE", "GENERATION", "UPDATED", "ON-DISCONNECT", "LABELS", "MESSAGE"];

    fn cells(&self, _wide: bool, now: Timestamp) -> Vec<String> {
        let status = &self.status;
        vec![
            self.name.to_string(),
            ready(self),
            status_word(self).to_owned(),
            self.pod.containers.first().map(|c| c.image.clone()).unwrap_or_default(),
            humanize::age(&self.created_at, now),
            self.pod.mode.as_str().to_owned(),
            self.generation.to_string(),
            format!("{}/{}", status.updated, status.desired),
            self.pod.on_disconnect.as_str().to_owned(),
            humanize::labels(&self.fields.labels).join(","),
            humanize::shorten_message(&status.message, 80),
        ]
    }

    fn name(&self) -> String {
        format!("service/{}", self.name)
    }
}

/// For a job, complete indices.
fn ready(service: &ServiceView) -> String {
    match (service.pod.kind, &service.job_status) {
        (Kind::Job, Some(job)) => format!("{}/{}", job.succeeded, job.completions),
        (Kind::Cron, _) => "-".to_owned(),
        _ => format!("{}/{}", service.status.ready_pods(), service.status.desired),
    }
}

pub fn status_word(service: &ServiceView) -> &str {
    service.status.summary(service.state)
}

/// `2/3 running, 1 assigned`.
pub fn pod_counts(service: &ServiceView) -> String {
    let status = &service.status;
    let ready = status.ready_pods();
    let mut text = format!("{ready}/{} running", status.desired);
    let older = status.running.saturating_sub(status.updated);
    let waiting = status.pending.saturating_sub(status.unschedulable);
    let others = [
        (status.running.saturating_sub(ready), "not ready"),
        (older, "of an older generation"),
        (waiting, "pending"),
        (status.unschedulable, "unschedulable"),
        (status.assigned, "assigned"),
        (status.stopping, "stopping"),
        (status.succeeded, "succeeded"),
        (status.failed, "failed"),
    ];
    for (count, word) in others.into_iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!(", {count} {word}"));
    }
    text
}

/// `with_machine_ports`: pods use ports of their machines.
pub fn describe(
    service: &ServiceView,
    with_machine_ports: bool,
    unhealthy: &[PodView],
    latest: &[ClusterEvent],
    now: Timestamp,
) -> String {
    let with_age = |time: &str| format!("{time} ({} ago)", humanize::age(time, now));
    let grace_period = service.pod.stop_grace_period.duration().as_secs();
    let mut layout = DescribeLayout::default();
    layout
        .field("Name", service.name.as_str())
        .field("Status", status_word(service))
        .field("Job", service.job_status.as_ref().map(job_line).unwrap_or_default())
        .field("Cron", service.cron_status.as_ref().map(cron_line).unwrap_or_default())
        .field("Pods", if service.pod.kind.is_service() { pod_counts(service) } else { String::new() })
        .field("Mode", mode(service))
        .field("App", service.fields.app.as_ref().map(|app| app.as_str()).unwrap_or_default())
        .field("Message", &service.status.message)
        .field("Updates", updates(service, with_machine_ports))
        .field("Rollout", service.rollout.as_ref().map(rollout_line).unwrap_or_default())
        .field("Waits", service.held.as_deref().unwrap_or_default())
        .field("Generation", service.generation.to_string())
        .fields("Image content", service.images.iter().map(containers::content))
        .field("Warning", &service.status.image_warning)
        .fields("Labels", humanize::labels(&service.fields.labels))
        .fields("Placement", service.fields.placement.iter().flat_map(rules))
        .field("Stateful", service.pod.stateful.as_ref().map(ordinals).unwrap_or_default())
        .field(
            "Min available",
            service.fields.min_available.map(|least| least.to_string()).unwrap_or_default(),
        )
        .field("Resources", service.pod.resources.to_string())
        .field("Scheduler", service.fields.scheduler.map(PlacementProfile::as_str).unwrap_or_default())
        .field("Priority", priority(service))
        .field("Created", with_age(&service.created_at))
        .field("Updated", with_age(&service.updated_at))
        .field("On disconnect", on_disconnect(service))
        .field("Grace period", format!("{grace_period} s between SIGTERM and SIGKILL"));
    if let Some(drain) = service.pod.drain {
        let drain = drain.duration().as_secs();
        layout.field("Drain", format!("{drain} s for requests in flight before SIGTERM"));
    }
    layout.section("Container", service.pod.containers.iter().flat_map(containers::lines));
    layout.section("Unhealthy pods", unhealthy.iter().map(pods::line));
    layout.section("Events (oldest first)", latest.iter().map(events::line));
    layout.section(
        "Keys in Redis",
        [
            format!("redis-cli HGETALL service:{0}", service.name),
            format!("redis-cli HGETALL slots:{}", service.name),
        ],
    );
    layout.finish()
}

/// With whether others are stopped for its pods.
fn priority(service: &ServiceView) -> String {
    let Some(priority) = service.fields.priority else { return String::new() };
    if Preemption::applies(service.fields.preemption, priority) {
        format!("{priority}; a pod that fits nowhere gets the room of pods of a lower one")
    } else {
        priority.to_string()
    }
}

/// With what makes a node eligible.
fn mode(service: &ServiceView) -> String {
    if !service.pod.mode.is_global() {
        return String::new();
    }
    let constraints = service.fields.placement.iter().flat_map(|placement| &placement.constraints);
    let constraints: Vec<&str> = constraints.map(String::as_str).collect();
    let satisfies = match constraints[..] {
        [] => String::new(),
        _ => format!(", and satisfies {}", constraints.join(" and ")),
    };
    let none = if service.status.desired == 0 { "; none is, now" } else { "" };
    format!("global (a pod on each node that is alive, not cordoned{satisfies}{none})")
}

fn rules(placement: &Placement) -> Vec<String> {
    let Placement { constraints, preferences, spread, max_per_node, affinity: _, anti_affinity: _ } =
        placement;
    let preference = |one: &Preference| format!("prefers {} (weight {})", one.when, one.weight);
    let spread_over = |one: &Spread| match one.hard {
        true => format!("spread over {}, at most {} apart", one.by, one.max_skew),
        false => format!("spread over {} (weight {})", one.by, one.weight),
    };
    let most = max_per_node.map(|most| format!("at most {most} on a node"));
    let relation = |one: Relation| {
        let (kind, place) = match one.kind {
            RelationKind::Near => ("near", "with"),
            RelationKind::Apart => ("away from", "without"),
        };
        let by = if one.is_by_node() { "node" } else { &one.key };
        match one.hard {
            true => format!("{kind} {}: only on a {by} {place} its pods", one.service),
            false => format!("{kind} {} by {by} (weight {})", one.service, one.weight),
        }
    };
    let hard = constraints.iter().cloned().chain(most).chain(placement.relations().map(relation));
    hard.chain(spread.iter().map(spread_over)).chain(preferences.iter().map(preference)).collect()
}

fn ordinals(stateful: &Stateful) -> String {
    let zones = match stateful.least_zones() {
        0 => String::new(),
        zones => format!(", of which there must be {zones}"),
    };
    let start = if stateful.starts_in_order() { "start in order" } else { "start at once" };
    format!("pods {start}, and those of a block have different values of {}{zones}", stateful.key())
}

fn updates(service: &ServiceView, with_machine_ports: bool) -> &'static str {
    let order = |with_machine_ports| service.fields.update_in_force(&service.pod, with_machine_ports).order;
    match order(with_machine_ports) {
        _ if !service.pod.kind.is_service() => "",
        Some(UpdateOrder::StopFirst) if order(false) == Some(UpdateOrder::StartFirst) => {
            "stop-first (its pods are plain processes: two on a machine cannot listen on the same port)"
        }
        Some(UpdateOrder::StopFirst) => "stop-first (a pod is stopped before its successor starts)",
        Some(UpdateOrder::StartFirst) | None => "start-first (a pod is stopped when its successor is good)",
    }
}

pub fn rollout_line(rollout: &RolloutView) -> String {
    let RolloutView { state, generation, message } = rollout;
    match state {
        RolloutState::Paused => format!("generation {generation} is paused: {message}"),
        RolloutState::RolledBack => format!("generation {generation} was rolled back: {message}"),
        RolloutState::AtCanary => format!("generation {generation} waits to be promoted: {message}"),
    }
}

fn on_disconnect(service: &ServiceView) -> &'static str {
    match service.pod.on_disconnect {
        OnDisconnect::Keep => "keep (pods run on while their node cannot reach Redis)",
        OnDisconnect::Stop => "stop (pods are stopped when their node cannot reach Redis)",
    }
}
