//! The addresses and limits of ingress.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use model::network::address_range::AddressRange;

use crate::challenges::Challenges;
use crate::https::HttpsConfig;

#[derive(Debug, Clone)]
pub struct IngressConfig {
    pub listen: SocketAddr,
    pub https: Option<HttpsConfig>,
    pub challenges: Option<Arc<Challenges>>,
    pub tcp_address: IpAddr,
    /// Longest wait of a request or connection for a ready pod.
    pub wait: Duration,
    pub connect_within: Duration,
    /// Longest time of a request's head, and of a TLS handshake.
    pub head_within: Duration,
    /// Maximum silence of a client while a byte is due.
    pub idle: Duration,
    /// By HTTP, HTTPS and TCP rules together.
    pub connections: usize,
    pub connections_per_client: usize,
    /// Proxies in front, whose forwarding headers are kept.
    pub trusted: Vec<AddressRange>,
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

    /// A trusted proxy carries all its clients.
    pub(crate) fn most_connections(&self, address: IpAddr) -> usize {
        if self.is_trusted(address) { usize::MAX } else { self.connections_per_client }
    }

    pub(crate) fn is_trusted(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|range| range.contains(address))
    }
}
