//! `port`: the published ports of a pod.

use std::net::SocketAddr;

use api_types::PodView;
use clap::Args;
use model::network::PublishedPort;
use output::objects::pods;

use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::objects::find_pod;
use crate::exit::Exit;

/// Arguments of `port`.
#[derive(Debug, Args)]
pub(crate) struct PortArgs {
    /// Pod: uuid, beginning of one, or a name such as web-0; or a service, of which a pod is chosen.
    #[arg(value_name = "POD")]
    pod: String,
    /// Only the addresses of this port of the container, such as 80 or 53/udp.
    #[arg(value_name = "PORT")]
    port: Option<String>,
}

pub(crate) async fn run(args: &PortArgs, context: &mut Context<'_>) -> CommandResult {
    let pod = find_pod::running_pod(context, &args.pod).await?;
    let lines = lines(&pod, args.port.as_deref()).map_err(CommandError::NotFound)?;
    context.output.print_document(&pod.ports, || lines.join("\n"))?;
    Ok(Exit::Ok)
}

fn lines(pod: &PodView, port: Option<&str>) -> Result<Vec<String>, String> {
    let name = pods::indexed_name(pod);
    let inside = |port: &PublishedPort| format!("{}/{}", port.container_port, port.protocol.as_str());
    let outside = |port: &PublishedPort| SocketAddr::new(port.host_ip, port.host_port).to_string();
    if pod.ports.is_empty() {
        return Err(format!(
            "{name} publishes no port: `kubeleet port-forward {name} 8080:80` reaches one from here, and `kubeleet route \
             ls` lists what is reached from outside"
        ));
    }
    let Some(wanted) = port else {
        return Ok(pod.ports.iter().map(|port| format!("{} -> {}", inside(port), outside(port))).collect());
    };
    let is_wanted =
        |port: &&PublishedPort| inside(port) == wanted || port.container_port.to_string() == wanted;
    let found: Vec<String> = pod.ports.iter().filter(is_wanted).map(outside).collect();
    if found.is_empty() {
        let published: Vec<String> = pod.ports.iter().map(inside).collect();
        return Err(format!("{name} does not publish {wanted}, but {}", published.join(", ")));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use model::pod::lifecycle::Phase;
    use model::spec::Protocol;
    use testkit::api_fixtures as fixtures;

    use super::*;

    #[test]
    fn published_ports_are_printed_as_docker_prints_them() {
        let port = |container_port, protocol, host_ip: &str, host_port| PublishedPort {
            container_port,
            protocol,
            host_ip: host_ip.parse().unwrap(),
            host_port,
        };
        let ports = vec![port(80, Protocol::Tcp, "0.0.0.0", 8081), port(53, Protocol::Udp, "::1", 5353)];
        let pod = PodView { ports, ..fixtures::pod("a", Phase::Running) };
        assert_eq!(lines(&pod, None).unwrap(), ["80/tcp -> 0.0.0.0:8081", "53/udp -> [::1]:5353"]);
        assert_eq!(lines(&pod, Some("80")).unwrap(), ["0.0.0.0:8081"]);
        assert_eq!(lines(&pod, Some("53/udp")).unwrap(), ["[::1]:5353"]);
        let error = lines(&pod, Some("53/tcp")).unwrap_err();
        assert_eq!(error, "web-0 does not publish 53/tcp, but 80/tcp, 53/udp");
        let without = PodView { ports: Vec::new(), ..pod };
        assert!(lines(&without, None).unwrap_err().contains("kubeleet port-forward web-0 8080:80"));
    }
}
