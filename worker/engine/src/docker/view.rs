//! Translates the engine's descriptions of containers.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use bollard::models::{
    ContainerInspectResponse, ContainerState as EngineState, ContainerStateStatusEnum, ContainerSummary,
    ContainerSummaryStateEnum, EndpointSettings, PortMap, PortSummary, PortSummaryTypeEnum,
};
use model::network::{ContainerNetwork, PublishedPort};
use model::spec::Protocol;

use crate::lines::nanoseconds;
use crate::{Container, ContainerState};

pub(super) enum Listed {
    Known(Container),
    /// Only inspection reports how it ended.
    Ended(Container),
    /// In removal, or with unreadable labels.
    Skip,
}

pub(super) fn listed(row: ContainerSummary) -> Listed {
    use ContainerSummaryStateEnum as S;
    let Some(handle) = row.id else { return Listed::Skip };
    let is_paused = row.state == Some(S::PAUSED);
    let state = match row.state.unwrap_or(S::EMPTY) {
        S::CREATED => ContainerState::Created,
        // Paused and restarting ones may run at any instant.
        S::RUNNING | S::PAUSED | S::RESTARTING | S::STOPPING => ContainerState::Running,
        S::EXITED | S::DEAD | S::EMPTY => ContainerState::Unknown,
        S::REMOVING => return Listed::Skip,
    };
    let networks = row.network_settings.and_then(|settings| settings.networks);
    let ports = row.ports.unwrap_or_default().into_iter().filter_map(listed_port);
    // Some engines list no addresses; then those of the first inspection stay.
    let network = Some(network(networks, ports)).filter(|network| !network.address.is_empty());
    let labels = row.labels.unwrap_or_default();
    let container = Container::from_labels(handle, |key| labels.get(key).map(String::as_str), state);
    match container {
        Some(container) if state == ContainerState::Unknown => Listed::Ended(container),
        Some(container) => Listed::Known(Container { network, is_paused, ..container }),
        None => Listed::Skip,
    }
}

#[derive(Default)]
pub(super) struct Inspected {
    pub(super) labels: HashMap<String, String>,
    /// `None` during removal, or if the labels are unreadable.
    pub(super) container: Option<Container>,
    /// In nanoseconds since the Unix epoch: between the former run's end and this start, as lines are stamped
    /// when the engine reads them.
    pub(super) run_began_at: Option<u64>,
    pub(super) has_stdin: bool,
    pub(super) is_stdin_once: bool,
    pub(super) has_terminal: bool,
}

pub(super) fn inspected(answer: ContainerInspectResponse) -> Inspected {
    let config = answer.config.unwrap_or_default();
    let labels = config.labels.unwrap_or_default();
    let engine_state = answer.state.unwrap_or_default();
    let is_paused = engine_state.status == Some(ContainerStateStatusEnum::PAUSED);
    let state = state_of(&engine_state);
    let time = |text: &Option<String>| text.as_deref().and_then(nanoseconds);
    let (started_at, ended_at) = (time(&engine_state.started_at), time(&engine_state.finished_at));
    let run_began_at = started_at.map(|started| match ended_at {
        Some(ended) if ended < started => ended + (started - ended) / 2,
        Some(_) | None => started,
    });
    let (networks, ports) =
        answer.network_settings.map(|settings| (settings.networks, settings.ports)).unwrap_or_default();
    let network = Some(network(networks, bound_ports(ports.unwrap_or_default())));
    let container = state.zip(answer.id).and_then(|(state, handle)| {
        Container::from_labels(handle, |key| labels.get(key).map(String::as_str), state)
    });
    let container = container.map(|container| Container { network, is_paused, ..container });
    Inspected {
        labels,
        container,
        run_began_at,
        has_stdin: config.open_stdin.unwrap_or(false),
        is_stdin_once: config.stdin_once.unwrap_or(false),
        has_terminal: config.tty.unwrap_or(false),
    }
}

fn state_of(state: &EngineState) -> Option<ContainerState> {
    use ContainerStateStatusEnum as S;
    match state.status.unwrap_or(S::EMPTY) {
        S::CREATED => Some(ContainerState::Created),
        S::RUNNING | S::PAUSED | S::RESTARTING | S::STOPPING => Some(ContainerState::Running),
        S::EXITED | S::DEAD | S::EMPTY => Some(ContainerState::Exited {
            code: state.exit_code.unwrap_or(255),
            out_of_memory: state.oom_killed.unwrap_or(false),
        }),
        S::REMOVING => None,
    }
}

fn network(
    networks: Option<HashMap<String, EndpointSettings>>,
    ports: impl Iterator<Item = PublishedPort>,
) -> ContainerNetwork {
    let mut ports: Vec<PublishedPort> = ports.collect();
    ports.sort();
    ports.dedup();
    ContainerNetwork { address: networks.map(first_address).unwrap_or_default(), ports }
}

/// Podman writes nothing for all addresses.
fn host_ip(text: &str) -> Option<IpAddr> {
    if text.is_empty() { Some(Ipv4Addr::UNSPECIFIED.into()) } else { text.parse().ok() }
}

fn listed_port(port: PortSummary) -> Option<PublishedPort> {
    let protocol = match port.typ? {
        PortSummaryTypeEnum::TCP => Protocol::Tcp,
        PortSummaryTypeEnum::UDP => Protocol::Udp,
        PortSummaryTypeEnum::EMPTY | PortSummaryTypeEnum::SCTP => return None,
    };
    let (host_ip, host_port) = (host_ip(&port.ip?)?, port.public_port?);
    Some(PublishedPort { container_port: port.private_port, protocol, host_ip, host_port })
}

fn bound_ports(ports: PortMap) -> impl Iterator<Item = PublishedPort> {
    ports.into_iter().flat_map(|(key, bindings)| {
        let port = key.split_once('/').and_then(|(number, protocol)| {
            let protocol = match protocol {
                "tcp" => Protocol::Tcp,
                "udp" => Protocol::Udp,
                _ => return None,
            };
            Some((number.parse::<u16>().ok()?, protocol))
        });
        let bindings = port.map(|port| (port, bindings.unwrap_or_default()));
        bindings.into_iter().flat_map(|((container_port, protocol), bindings)| {
            bindings.into_iter().filter_map(move |binding| {
                let (host_ip, host_port) = (host_ip(&binding.host_ip?)?, binding.host_port?.parse().ok()?);
                Some(PublishedPort { container_port, protocol, host_ip, host_port })
            })
        })
    })
}

/// The first network by name, so that the address is stable.
fn first_address(networks: HashMap<String, EndpointSettings>) -> String {
    let mut named: Vec<_> =
        networks.into_iter().filter_map(|(name, net)| Some((name, net.ip_address?))).collect();
    named.sort();
    named.into_iter().map(|(_, address)| address).find(|address| !address.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::json;

    use super::*;

    const LABELS: &str = r#"{"kubeleet.pod":"p","kubeleet.assignment":"a"}"#;

    fn row(state: &str, address: &str, ports: serde_json::Value) -> Container {
        let labels: serde_json::Value = serde_json::from_str(LABELS).unwrap();
        let networks = json!({"Networks": {"bridge": {"IPAddress": address}}});
        let row = json!({
            "Id": "h", "State": state, "Labels": labels, "NetworkSettings": networks, "Ports": ports
        });
        match listed(serde_json::from_value(row).unwrap()) {
            Listed::Known(container) | Listed::Ended(container) => container,
            Listed::Skip => panic!("skipped"),
        }
    }

    fn shown(container: &Container) -> Option<String> {
        let network = container.network.as_ref()?;
        let ports: Vec<String> = network.ports.iter().map(ToString::to_string).collect();
        Some(format!("{} {}", network.address, ports.join(" ")))
    }

    #[test]
    fn a_row_has_the_published_ports_or_tells_nothing_of_the_network() {
        let port = |ip: &str, public: u16, kind: &str| json!({"IP": ip, "PrivatePort": 80, "PublicPort": public, "Type": kind});
        let exposed = json!({"PrivatePort": 80, "Type": "tcp"});
        let table = [
            (json!([]), Some("10.0.0.2 ")),
            (json!([exposed]), Some("10.0.0.2 ")),
            (
                json!([port("::1", 2, "tcp"), port("127.0.0.1", 1, "tcp")]),
                Some("10.0.0.2 127.0.0.1:1->80/tcp [::1]:2->80/tcp"),
            ),
            (json!([port("", 1, "udp")]), Some("10.0.0.2 0.0.0.0:1->80/udp")),
            (json!([port("127.0.0.1", 1, "sctp")]), Some("10.0.0.2 ")),
        ];
        for (ports, expected) in table {
            let container = row("running", "10.0.0.2", ports.clone());
            assert_eq!(shown(&container).as_deref(), expected, "{ports}");
        }
        assert_eq!(shown(&row("running", "", json!([port("127.0.0.1", 1, "tcp")]))), None);
    }

    #[test]
    fn a_paused_container_runs_and_is_known_to_be_paused() {
        for (state, is_paused) in [("running", false), ("paused", true)] {
            let container = row(state, "", json!([]));
            assert_eq!((container.state, container.is_paused), (ContainerState::Running, is_paused));
        }
    }

    #[test]
    fn an_inspection_has_the_bound_ports_and_an_ended_container_none() {
        let inspect = |status: &str, address: &str, ports: serde_json::Value| {
            let labels: serde_json::Value = serde_json::from_str(LABELS).unwrap();
            let settings = json!({"Networks": {"bridge": {"IPAddress": address}}, "Ports": ports});
            let answer = json!({
                "Id": "h", "Config": {"Labels": labels}, "State": {"Status": status}, "NetworkSettings": settings
            });
            shown(&inspected(serde_json::from_value(answer).unwrap()).container.unwrap()).unwrap()
        };
        let bindings = json!({"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": "32769"}], "53/udp": null});
        assert_eq!(inspect("running", "10.0.0.2", bindings), "10.0.0.2 127.0.0.1:32769->80/tcp");
        assert_eq!(inspect("exited", "", json!({})), " ");
    }
}
