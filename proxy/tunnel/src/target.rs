//! The line that names a pod to connect to.

use std::io;

use gate::socket::Socket;
use model::ids::{AssignmentId, PodId};
use tokio::io::AsyncReadExt;
use tokio_rustls::server::TlsStream;

const MAX_LINE_BYTES: usize = 256;

pub(crate) struct TunnelTarget {
    pub(crate) pod: PodId,
    pub(crate) assignment: AssignmentId,
    pub(crate) port: u16,
}

/// Reads nothing after it.
pub(crate) async fn read_target(peer: &mut TlsStream<Socket>) -> io::Result<TunnelTarget> {
    let mut line = Vec::with_capacity(MAX_LINE_BYTES);
    loop {
        match peer.read_u8().await? {
            b'\n' => break,
            byte if line.len() < MAX_LINE_BYTES => line.push(byte),
            _ => return Err(io::Error::other("the line that names the pod is too long")),
        }
    }
    parse_target(&line).ok_or_else(|| io::Error::other("the line does not name a pod"))
}

fn parse_target(line: &[u8]) -> Option<TunnelTarget> {
    let mut parts = std::str::from_utf8(line).ok()?.split(' ');
    let (pod, assignment, port) = (parts.next()?, parts.next()?, parts.next()?);
    let is_whole = parts.next().is_none();
    let port = port.parse().ok().filter(|_| is_whole)?;
    Some(TunnelTarget { pod: PodId::new(pod).ok()?, assignment: AssignmentId::new(assignment).ok()?, port })
}
