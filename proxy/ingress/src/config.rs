//! Where ingress listens, and its limits.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use model::network::address_range::AddressRange;

use crate::challenges::Challenges;
use crate::https::HttpsConfig;

/// Where ingress listens, and its limits.
#[derive(Debug, Clone)]
pub struct IngressConfig {
    /// Address for HTTP.
    pub listen: SocketAddr,
    /// Where HTTPS is taken; `None` for HTTP only.
    pub https: Option<HttpsConfig>,
    /// Answers authorities that check hosts whose certificates are ordered; `None` if none are.
    pub challenges: Option<Arc<Challenges>>,
    /// Address on which the ports of TCP rules are opened.
    pub tcp_address: IpAddr,
    /// How long a request or connection waits for a ready pod.
    pub wait: Duration,
    /// The longest time to connect to a pod.
    pub connect_within: Duration,
    /// The longest time for the head of a request to arrive, and for a TLS handshake.
    pub head_within: Duration,
    /// The longest time without a byte from the client when one is due.
    pub idle: Duration,
    /// The most connections, by HTTP, HTTPS and TCP rules together.
    pub connections: usize,
    /// The most of them from one address.
    pub connections_per_client: usize,
    /// Proxies before this one whose forwarding headers are kept.
    pub trusted: Vec<AddressRange>,
    /// Threads that serve HTTP.
    pub threads: usize,
}

impl Default for IngressConfig {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 8080).into(),
            https: None,
            challenges: None,
            tcp_address: Ipv4Addr::LOCALHOST.into(),
            wait: Duration::from_secs(10),
            connect_within: tunnel::CONNECT_WITHIN,
            head_within: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            connections: usize::MAX,
            connections_per_client: 1000,
            trusted: Vec::new(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

impl IngressConfig {
    /// Returns whether requests are taken by HTTP or HTTPS on this port.
    pub(crate) fn is_own_port(&self, port: u16) -> bool {
        let https = self.https.as_ref().map(|https| https.listen.port());
        port == self.listen.port() || Some(port) == https
    }

    /// Returns the most connections from an address: a proxy before this one has those of all its clients.
    pub(crate) fn most_connections(&self, address: IpAddr) -> usize {
        if self.is_trusted(address) { usize::MAX } else { self.connections_per_client }
    }

    /// Returns whether an address is that of a trusted proxy before this one.
    pub(crate) fn is_trusted(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|range| range.contains(address))
    }
}
