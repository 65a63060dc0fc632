//! The stream of a connection between two proxies.

use gate::socket::Socket;

/// To a pod through the proxy of its host.
pub type TunnelStream = tokio_rustls::client::TlsStream<Socket>;
