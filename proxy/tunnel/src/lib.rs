//! The tunnel between proxies of different hosts: TLS 1.3 on one TCP port, with the key of each proxy pinned
//! through Redis. Each connection to a pod has a TLS connection of its own: no slow reader holds up another.
//! That of a request is kept for the next one, which asks the pod's gate anew. That of a TCP connection is
//! opened ahead.
//!
//! A proxy's own key is made by itself and never leaves its host. Redis has only the fingerprint of the
//! public key: reading Redis reveals no secret key.
//!
//! Of this workspace it may import `common` and `gate`. Its own tests hold it, and those of ingress with pods
//! on another host.

mod ahead;
mod dial;
mod frame;
mod host;
mod kept;
mod key;
mod listen;
mod peers;
mod serve_kept;
mod serving;
mod silent;
mod stream;
#[cfg(test)]
mod tests;
mod tls;

use gate::EnterError;

pub use dial::{CONNECT_WITHIN, HttpStream, TunnelDialer, TunnelError};
pub use host::{HostTunnel, PORT};
pub use kept::{KeptStream, NotAccepted};
pub use key::{Fingerprint, ProxyKey};
pub use listen::TunnelListener;
pub use peers::{Peer, Peers};
pub use serving::{MAX_SERVICES, ServedPod};
pub use stream::TunnelStream;

/// What the two ends agree on in the handshake: one connection to one port of a pod.
const TCP_PROTOCOL: &[u8] = b"kubeleet-tcp/1";
/// The same, and the line that names the pod may come later.
const AHEAD_PROTOCOL: &[u8] = b"kubeleet-ahead/1";
/// The same for one request after the other, in frames.
const KEPT_PROTOCOL: &[u8] = b"kubeleet-kept/1";
/// The question which pods serve.
const SERVING_PROTOCOL: &[u8] = b"kubeleet-serving/1";

/// The answer to the line that names a pod: one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TunnelReply {
    /// What follows is the pod's.
    Connected,
    /// The pod is about to be stopped.
    Closed,
    /// The pod is not on that host.
    Unknown,
    /// The pod accepts no connection on this port.
    NotListening,
}

impl TunnelReply {
    const ALL: [Self; 4] = [Self::Connected, Self::Closed, Self::Unknown, Self::NotListening];

    fn byte(self) -> u8 {
        match self {
            TunnelReply::Connected => b'+',
            TunnelReply::Closed => b'c',
            TunnelReply::Unknown => b'u',
            TunnelReply::NotListening => b'n',
        }
    }

    fn of_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reply| reply.byte() == byte)
    }
}

fn reply_of(refusal: EnterError) -> TunnelReply {
    match refusal {
        EnterError::Closed => TunnelReply::Closed,
        EnterError::Unknown => TunnelReply::Unknown,
    }
}

/// Returns what an answer means that does not let a request in.
fn refusal_of(reply: TunnelReply) -> EnterError {
    match reply {
        TunnelReply::Closed => EnterError::Closed,
        TunnelReply::Connected | TunnelReply::Unknown | TunnelReply::NotListening => EnterError::Unknown,
    }
}
