//! The tunnel between proxies of different hosts: TLS 1.3 on one TCP port, with keys pinned through Redis.
//! Each connection to a pod has its own TLS connection, so that no slow reader holds up another.
//!
//! A key never leaves its host: Redis has only fingerprints.
//!
//! Of this workspace it may import `daemon`, `model`, `store` and `gate`.
//!
//! Tests: tunnel, ingress::other_host, scenarios::tunnel, scenarios::three_hosts

mod dial;
mod frame;
mod host;
mod kept;
mod key;
mod listen;
mod opened_ahead;
mod peers;
mod protocol;
mod serve_kept;
mod serving;
mod silent;
mod stream;
mod target;
#[cfg(test)]
mod tests;
mod tls;

pub use dial::{CONNECT_WITHIN, TunnelDialer, TunnelError};
pub use host::{HostTunnel, PORT};
pub use kept::{KeptStream, NotAccepted};
pub use key::{Fingerprint, ProxyKey};
pub use listen::TunnelListener;
pub use peers::{Peer, Peers};
pub use serving::{MAX_SERVICES, ServedPod};
pub use stream::TunnelStream;
