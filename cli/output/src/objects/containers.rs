//! A container's specification as lines of a description.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use model::pod::image::ImageContent;
use model::spec::{ContainerSpec, Port, RestartPolicy};

use crate::humanize;

/// Independent of the image's tag.
pub fn content(image: &ImageContent) -> String {
    match image.digest {
        Some(_) => format!("{} is {}", image.image, image.identity()),
        None => format!("{} is {}, which came from no registry", image.image, image.identity()),
    }
}

pub fn lines(container: &ContainerSpec) -> Vec<String> {
    let mut lines = vec![format!("image        {}", container.image)];
    if !container.command.is_empty() {
        lines.push(format!("command      {:?}", container.command.0));
    }
    // Values may be secret, and terminal output ends up in histories and tickets. `-o json` has them.
    lines.extend(container.environment.iter().map(|(name, _)| format!("environment  {name}=…")));
    lines.extend(container.ports.iter().map(|port| format!("port         {}", port_text(port))));
    lines.extend(container.memory.map(|memory| format!("memory       {}", humanize::bytes(memory.bytes()))));
    lines.extend(container.cpus.map(|cpus| format!("cpus         {}", humanize::cores(cpus.millis()))));
    lines.push(format!("restart      {}", restart_word(container)));
    lines.extend(other_fields(container));
    lines
}

/// As in a file.
fn other_fields(container: &ContainerSpec) -> Vec<String> {
    const SHOWN: [&str; 7] = ["image", "command", "environment", "ports", "memory", "cpus", "restart"];
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(container) else { return Vec::new() };
    let others = fields.into_iter().filter(|(name, _)| !SHOWN.contains(&name.as_str()));
    others
        .map(|(name, value)| match value {
            serde_json::Value::String(text) => format!("{name:<12} {text}"),
            other => format!("{name:<12} {other}"),
        })
        .collect()
}

fn restart_word(container: &ContainerSpec) -> &'static str {
    match container.restart {
        RestartPolicy::Always => "always",
        RestartPolicy::OnFailure => "on-failure",
        RestartPolicy::Never => "never",
    }
}

fn port_text(port: &Port) -> String {
    let ip = port.host_ip.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let published = match port.host {
        Some(host) => SocketAddr::new(ip, host).to_string(),
        None => format!("{ip}, at a port that the engine chooses: see `kubeleet pod ls`"),
    };
    format!("{}/{} on {published}", port.container, port.protocol.as_str())
}
