//! The stream of a connection between two proxies.

use gate::socket::Socket;

pub type TunnelStream = tokio_rustls::client::TlsStream<Socket>;
