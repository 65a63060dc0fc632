//! The addresses and limits of ingress.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use model::network::address_range::AddressRange;

use crate::challenges::Challenges;
use crate::https::HttpsConfig;

/// The addresses and limits of ingress.
#[derive(Debug, Clone)]
pub struct IngressConfig {
    /// Address for HTTP.
    pub listen: SocketAddr,
    /// HTTPS settings; `None` for HTTP only.
    pub https: Option<HttpsConfig>,
    /// Answers ACME challenges; `None` if there are none.
    pub challenges: Option<Arc<Challenges>>,
    /// Address on which the ports of TCP rules are opened.
    pub tcp_address: IpAddr,
    /// Maximum wait of a request or connection for a ready pod.
    pub wait: Duration,
    /// Timeout of a connection to a pod.
    pub connect_within: Duration,
    /// Timeout of a request's head, and of a TLS handshake.
    pub head_within: Duration,
    /// Maximum silence of a client while a byte is due.
    pub idle: Duration,
    /// Maximum number of connections by HTTP, HTTPS and TCP rules together.
    pub connections: usize,
    /// Maximum number of connections from one address.
    pub connections_per_client: usize,
    /// Proxies in front of this one, whose forwarding headers are kept.
    pub trusted: Vec<AddressRange>,
    /// Number of threads that serve HTTP.
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
    pub(crate) fn is_own_port(&self, port: u16) -> bool {
        let https = self.https.as_ref().map(|https| https.listen.port());
        port == self.listen.port() || Some(port) == https
    }

    /// Returns the limit for an address. A trusted proxy has none: it carries all its clients.
    pub(crate) fn most_connections(&self, address: IpAddr) -> usize {
        if self.is_trusted(address) { usize::MAX } else { self.connections_per_client }
    }

    pub(crate) fn is_trusted(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|range| range.contains(address))
    }
}
