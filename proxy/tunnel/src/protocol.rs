//! The protocols of a tunnel connection (ALPN), and its first reply.

use gate::EnterError;

/// One connection to a pod. The line that names it may come later.
pub(crate) const AHEAD_PROTOCOL: &[u8] = b"kubeleet-ahead/1";
/// For consecutive requests, in frames.
pub(crate) const KEPT_PROTOCOL: &[u8] = b"kubeleet-kept/1";
/// Probes a silent host: the handshake is the answer.
pub(crate) const PROBE_PROTOCOL: &[u8] = b"kubeleet-tcp/1";
pub(crate) const SERVING_PROTOCOL: &[u8] = b"kubeleet-serving/1";

/// One byte, after the line that names a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum TunnelReply {
    Connected = b'+',
    Closed = b'c',
    Unknown = b'u',
    NotListening = b'n',
}

impl TunnelReply {
    const ALL: [Self; 4] = [Self::Connected, Self::Closed, Self::Unknown, Self::NotListening];

    pub(crate) fn byte(self) -> u8 {
        self as u8
    }

    pub(crate) fn of_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reply| reply.byte() == byte)
    }
}

pub(crate) fn reply_of(refusal: EnterError) -> TunnelReply {
    match refusal {
        EnterError::Closed => TunnelReply::Closed,
        EnterError::Unknown => TunnelReply::Unknown,
    }
}

pub(crate) fn refusal_of(reply: TunnelReply) -> EnterError {
    if reply == TunnelReply::Closed { EnterError::Closed } else { EnterError::Unknown }
}
