//! Services in words.

use api::dto::{PodView, ServiceView};
use common::event::ClusterEvent;
use common::service::ServiceState;
use common::spec::{ContainerSpec, Port};
use jiff::Timestamp;

use super::story::Story;
use super::{Listed, events, pods, words};

impl Listed for ServiceView {
    fn titles(wide: bool) -> Vec<&'static str> {
        let mut titles = vec!["NAME", "RUNNING", "STATUS", "IMAGE", "AGE"];
        if wide {
            titles.extend(["GENERATION", "UPDATED", "ON-DISCONNECT", "LABELS", "MESSAGE"]);
        }
        titles
    }

    fn cells(&self, wide: bool, now: Timestamp) -> Vec<String> {
        let status = &self.status;
        let mut cells = vec![
            self.name.to_string(),
            format!("{}/{}", status.running, status.desired),
            state_word(self).to_owned(),
            self.containers.first().map(|c| c.image.clone()).unwrap_or_default(),
            words::age(&self.created_at, now),
        ];
        if wide {
            cells.extend([
                self.generation.to_string(),
                format!("{}/{}", status.updated, status.desired),
                self.on_disconnect.as_str().to_owned(),
                pairs(self.labels.iter()).join(","),
                words::shorten(&status.message, 80),
            ]);
        }
        cells
    }

    fn name(&self) -> String {
        format!("service/{}", self.name)
    }
}

/// One word on how a service is.
pub(crate) fn state_word(service: &ServiceView) -> &'static str {
    let status = &service.status;
    if service.state == ServiceState::Deleting {
        "deleting"
    } else if status.unschedulable > 0 {
        "unschedulable"
    } else if status.failed > 0 {
        "failed"
    } else if status.running >= status.desired && status.stopping > 0 {
        "scaling"
    } else if status.updated + status.succeeded >= status.desired {
        if status.succeeded > 0 && status.running == 0 { "succeeded" } else { "ready" }
    } else if status.running >= status.desired {
        "updating"
    } else {
        "starting"
    }
}

/// How many pods are where: `2/3 running, 1 assigned`.
pub(crate) fn counts(service: &ServiceView) -> String {
    let status = &service.status;
    let mut text = format!("{}/{} running", status.running, status.desired);
    let old = status.running.saturating_sub(status.updated);
    let waiting = status.pending.saturating_sub(status.unschedulable);
    let others = [
        (old, "of an older generation"),
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

/// Everything about a service. `pods` are its pods that are not well.
pub(crate) fn describe(
    service: &ServiceView,
    unwell: &[PodView],
    last: &[ClusterEvent],
    now: Timestamp,
) -> String {
    let mut story = Story::default();
    story
        .line("Name", service.name.as_str())
        .line("State", state_word(service))
        .line("Pods", counts(service))
        .line("Message", &service.status.message)
        .line("Generation", service.generation.to_string())
        .lines("Labels", pairs(service.labels.iter()))
        .line("Created", format!("{} ({} ago)", service.created_at, words::age(&service.created_at, now)))
        .line("Updated", format!("{} ({} ago)", service.updated_at, words::age(&service.updated_at, now)))
        .line("Disconnected", disconnect(service))
        .line("Stop grace", format!("{} s between SIGTERM and SIGKILL", grace(service)));
    story.section("Container", service.containers.iter().flat_map(container));
    story.section("Pods that are not well", unwell.iter().map(pods::line));
    story.section("Events, the last at the end", last.iter().map(events::line));
    story.section(
        "The same in Redis",
        [
            format!("redis-cli HGETALL service:{0}", service.name),
            format!("redis-cli HGETALL slots:{}", service.name),
        ],
    );
    story.tell()
}

fn grace(service: &ServiceView) -> u64 {
    service.stop_grace_period.duration().as_secs()
}

fn disconnect(service: &ServiceView) -> &'static str {
    match service.on_disconnect {
        common::spec::OnDisconnect::Keep => "keep: pods run on when their node can not reach Redis",
        common::spec::OnDisconnect::Stop => "stop: pods are stopped when their node can not reach Redis",
    }
}

/// What a container is, a line for each thing said.
pub(crate) fn container(container: &ContainerSpec) -> Vec<String> {
    let mut lines = vec![format!("image        {}", container.image)];
    if !container.command.is_empty() {
        lines.push(format!("command      {:?}", container.command.0));
    }
    // Values may be secret and end up in terminals' histories and tickets: `-o json` shows them to who asks.
    lines.extend(container.environment.iter().map(|(name, _)| format!("environment  {name}=…")));
    lines.extend(container.ports.iter().map(|port| format!("port         {}", port_text(port))));
    lines.extend(container.memory.map(|memory| format!("memory       {}", words::bytes(memory.bytes()))));
    lines.extend(container.cpus.map(|cpus| format!("cpus         {}", words::cores(cpus.millis()))));
    lines.push(format!("restart      {}", restart_word(container)));
    lines
}

fn restart_word(container: &ContainerSpec) -> &'static str {
    match container.restart {
        common::spec::RestartPolicy::Always => "always",
        common::spec::RestartPolicy::OnFailure => "on-failure",
        common::spec::RestartPolicy::Never => "never",
    }
}

fn port_text(port: &Port) -> String {
    let ip = port.host_ip.map_or_else(|| "127.0.0.1".to_owned(), |ip| ip.to_string());
    let host = port.host.map_or_else(|| "a free port".to_owned(), |host| host.to_string());
    format!("{}/{} at {ip}, {host}", port.container, port.protocol.as_str())
}

/// `key=value` of each label.
pub(crate) fn pairs<'a>(labels: impl Iterator<Item = (&'a String, &'a String)>) -> Vec<String> {
    labels.map(|(key, value)| format!("{key}={value}")).collect()
}
