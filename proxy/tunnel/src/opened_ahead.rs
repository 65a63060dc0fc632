//! Connections to other hosts, opened before they are needed.
//!
//! A connect, a TLS handshake and a question take a round trip each. So each use of a host opens the next
//! connection ahead, which names its pod when it is used.

use std::collections::HashMap;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, ReadBuf};

use super::peers::Peer;
use super::stream::TunnelStream;

/// More are opened while these are used, so four suffice for hundreds a second.
const MOST_WAITING: usize = 4;
/// Shorter than at the other end.
const WAITS_FOR: Duration = Duration::from_secs(50);

pub(super) struct OpenedAhead {
    hosts: Mutex<HashMap<Peer, HostConnections>>,
    waits_for: Duration,
}

#[derive(Default)]
struct HostConnections {
    opening: usize,
    waiting: Vec<WaitingConnection>,
    next: u64,
}

struct WaitingConnection {
    number: u64,
    stream: TunnelStream,
}

impl Default for OpenedAhead {
    fn default() -> Self {
        Self { hosts: Mutex::default(), waits_for: WAITS_FOR }
    }
}

impl OpenedAhead {
    #[cfg(test)]
    pub(super) fn for_time(waits_for: Duration) -> Self {
        Self { waits_for, ..Self::default() }
    }

    pub(super) fn take(&self, peer: &Peer) -> Option<TunnelStream> {
        let mut hosts = self.hosts.lock();
        let waiting = &mut hosts.get_mut(peer)?.waiting;
        while let Some(WaitingConnection { mut stream, .. }) = waiting.pop() {
            if is_open(&mut stream) {
                return Some(stream);
            }
        }
        None
    }

    /// Each use opens one, so unused hosts have none.
    pub(super) async fn open(&self, peer: Peer, open: impl Future<Output = Option<TunnelStream>>) {
        if !self.begin(peer) {
            return;
        }
        let stream = open.await;
        if let Some(number) = self.end(peer, stream) {
            tokio::time::sleep(self.waits_for).await;
            self.remove(peer, number);
        }
    }

    fn begin(&self, peer: Peer) -> bool {
        let mut hosts = self.hosts.lock();
        let host = hosts.entry(peer).or_default();
        let is_wanted = host.opening + host.waiting.len() < MOST_WAITING;
        host.opening += usize::from(is_wanted);
        is_wanted
    }

    fn end(&self, peer: Peer, stream: Option<TunnelStream>) -> Option<u64> {
        let mut hosts = self.hosts.lock();
        let host = hosts.get_mut(&peer)?;
        host.opening -= 1;
        let number = host.next;
        if let Some(stream) = stream {
            host.next += 1;
            host.waiting.push(WaitingConnection { number, stream });
            return Some(number);
        }
        forget_if_empty(&mut hosts, peer);
        None
    }

    fn remove(&self, peer: Peer, number: u64) {
        let mut hosts = self.hosts.lock();
        if let Some(host) = hosts.get_mut(&peer) {
            host.waiting.retain(|waiting| waiting.number != number);
        }
        forget_if_empty(&mut hosts, peer);
    }

    #[cfg(test)]
    pub(super) fn waiting(&self, peer: &Peer) -> usize {
        self.hosts.lock().get(peer).map_or(0, |host| host.waiting.len())
    }
}

fn forget_if_empty(hosts: &mut HashMap<Peer, HostConnections>, peer: Peer) {
    if hosts.get(&peer).is_some_and(|host| host.opening == 0 && host.waiting.is_empty()) {
        hosts.remove(&peer);
    }
}

/// The other end sends nothing before it is asked.
fn is_open(stream: &mut TunnelStream) -> bool {
    let mut byte = [0];
    let mut buffer = ReadBuf::new(&mut byte);
    Pin::new(stream).poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer).is_pending()
}
