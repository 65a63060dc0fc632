//! The ports that a pod takes on its node.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::Port;

/// Pods with a common port cannot share a node, whatever the addresses. Stored sorted: `443/udp 8080/tcp`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPorts(Option<Arc<str>>);

impl HostPorts {
    /// A port without a host port gets a free one.
    pub fn of<'a>(ports: impl IntoIterator<Item = &'a Port>) -> Self {
        let host_port = |port: &Port| Some(format!("{}/{}", port.host?, port.protocol.as_str()));
        let ports: BTreeSet<String> = ports.into_iter().filter_map(host_port).collect();
        Self::from_text(ports.into_iter().collect::<Vec<_>>().join(" "))
    }

    pub fn from_text(text: String) -> Self {
        Self((!text.is_empty()).then(|| text.into()))
    }

    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.as_str().split_ascii_whitespace()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl fmt::Display for HostPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_ports_are_sorted_and_named_once() {
        let of = |ports: &[&str]| {
            let ports: Vec<Port> = ports.iter().map(|port| port.parse().unwrap()).collect();
            HostPorts::of(&ports).to_string()
        };
        assert_eq!(of(&["80", "8080:80", "0.0.0.0:8080:81", "443:443/udp"]), "443/udp 8080/tcp");
        assert_eq!(of(&["80"]), "");
        assert!(HostPorts::of(&[]).is_empty());
    }
}
