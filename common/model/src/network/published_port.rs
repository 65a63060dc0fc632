//! Published ports and addresses of a pod's containers.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::AssignmentId;
use crate::spec::Protocol;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerNetwork {
    /// May be empty.
    pub address: String,
    /// Sorted; engines may bind one port to several addresses.
    pub ports: Vec<PublishedPort>,
}

/// A port of a container that can be reached through its node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct PublishedPort {
    /// Port inside the container.
    pub container_port: u16,
    /// `tcp` or `udp`.
    pub protocol: Protocol,
    /// Address of the node that the port is bound to; `0.0.0.0` and `::` are all of them.
    #[schema(value_type = String, example = "127.0.0.1")]
    pub host_ip: IpAddr,
    /// Port on the node: the configured one, or the one that the engine chose.
    pub host_port: u16,
}

impl fmt::Display for PublishedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { container_port, protocol, host_ip, host_port } = self;
        write!(f, "{}->{container_port}/{}", SocketAddr::new(*host_ip, *host_port), protocol.as_str())
    }
}

/// Ports of an earlier assignment never count.
#[derive(Serialize, Deserialize)]
struct StoredPorts {
    assignment: AssignmentId,
    #[serde(default)]
    ports: Vec<serde_json::Value>,
}

pub fn ports_to_json(assignment: &AssignmentId, ports: &[PublishedPort]) -> String {
    let ports = ports.iter().map(|port| serde_json::json!(port)).collect();
    let stored = StoredPorts { assignment: assignment.clone(), ports };
    serde_json::to_string(&stored).expect("strings and numbers always serialize")
}

/// Empty without ports: there is nothing to write.
pub fn published_field(assignment: &AssignmentId, ports: &[PublishedPort]) -> String {
    if ports.is_empty() { String::new() } else { ports_to_json(assignment, ports) }
}

/// Skips unreadable ports: the worker's next report rewrites them.
pub fn ports_from_json(json: &str, assignment: Option<&AssignmentId>) -> Vec<PublishedPort> {
    let Ok(stored) = serde_json::from_str::<StoredPorts>(json) else { return Vec::new() };
    if Some(&stored.assignment) != assignment {
        return Vec::new();
    }
    stored.ports.into_iter().filter_map(|port| serde_json::from_value(port).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(host_ip: &str) -> PublishedPort {
        let host_ip = host_ip.parse().unwrap();
        PublishedPort { container_port: 80, protocol: Protocol::Tcp, host_ip, host_port: 32769 }
    }

    #[test]
    fn published_ports_look_as_in_docker_ps() {
        assert_eq!(port("127.0.0.1").to_string(), "127.0.0.1:32769->80/tcp");
        assert_eq!(port("::").to_string(), "[::]:32769->80/tcp");
    }

    #[test]
    fn stored_ports_are_read_back_only_for_their_assignment() {
        let (current, other) = (AssignmentId::random(), AssignmentId::random());
        let ports = vec![port("127.0.0.1"), port("::1")];
        let json = ports_to_json(&current, &ports);
        assert_eq!(ports_from_json(&json, Some(&current)), ports);
        assert_eq!(ports_from_json(&json, Some(&other)), []);
        assert_eq!(ports_from_json(&json, None), []);
    }

    #[test]
    fn what_a_later_version_or_a_person_wrote_harms_nothing() {
        let assignment = AssignmentId::random();
        let json = ports_to_json(&assignment, &[port("::1")]);
        let table = [
            (
                json.replace("\"ports\":[", "\"new\":1,\"ports\":[{\"container_port\":\"x\"},"),
                vec![port("::1")],
            ),
            (json.replace("::1", "nowhere"), vec![]),
            ("nonsense".to_owned(), vec![]),
            (String::new(), vec![]),
        ];
        for (stored, expected) in table {
            assert_eq!(ports_from_json(&stored, Some(&assignment)), expected, "{stored}");
        }
    }
}
