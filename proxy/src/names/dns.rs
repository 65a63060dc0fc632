//! Listens for the questions of pods, over UDP and over TCP.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use common::listen::Presence;
use common::store::Store;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::answer::QuestionTransport;
use super::forward::{Forwarder, RESOLV_CONF, read_message, write_message};
use super::resolver::Resolver;
use crate::follow::Follower;
use crate::listening::Listening;

/// The port to which the host's rules redirect port 53 of the resolver's address.
pub(crate) const PORT: u16 = 7053;
/// The longest question over UDP that is read. No client sends more.
const MAX_DATAGRAM: usize = 4096;
/// The most questions over UDP that wait for Redis or for another resolver.
const MAX_WAITING: usize = 1024;
/// The most questions of one pod over UDP in a second; more are dropped.
const MAX_PER_SECOND: u32 = 1000;
/// The most connections at a time, and how long one may be silent.
const MAX_CONNECTIONS: usize = 256;
const IDLE: Duration = Duration::from_secs(10);
/// The wait after a failed receive or accept.
const RETRY: Duration = Duration::from_millis(50);

/// Both ports of the resolver on one address.
pub(super) struct DnsListener {
    udp: Arc<UdpSocket>,
    tcp: Arc<TcpListener>,
}

impl DnsListener {
    /// Binds both.
    ///
    /// # Errors
    /// If one is in use, or the address is not of this host.
    pub(super) fn bind(
        address: SocketAddr,
        presence: Presence,
        listening: &Listening,
    ) -> std::io::Result<Self> {
        Ok(Self { udp: listening.udp_at(address, presence)?, tcp: listening.tcp_at(address, presence)? })
    }

    /// Answers questions, for ever.
    pub(super) async fn run(self, resolver: Arc<Resolver>) {
        let limit = MAX_PER_SECOND;
        tokio::join!(answer_datagrams(self.udp, resolver.clone(), limit), accept_all(self.tcp, resolver));
    }
}

/// Answers questions at an address, as the resolver of a host does, but as many of one client as it sends:
/// for benches.
///
/// # Errors
/// If the address cannot be listened on.
pub async fn answer_without_limit(address: SocketAddr, store: Store) -> std::io::Result<()> {
    let (follower, snapshot) = Follower::new(store.clone(), None);
    let forwarder = Forwarder::new(RESOLV_CONF.into());
    let resolver = Resolver::new(store, follower.interest(), snapshot, Arc::default(), forwarder);
    let shutdown = CancellationToken::new();
    let listener = DnsListener::bind(address, Presence::Required, &Listening::from(shutdown.clone()))?;
    let resolver = Arc::new(resolver);
    let answer = answer_datagrams(listener.udp, resolver.clone(), u32::MAX);
    tokio::join!(answer, accept_all(listener.tcp, resolver), follower.run(shutdown));
    Ok(())
}

/// Answers at most `limit` questions of one client in a second.
async fn answer_datagrams(socket: Arc<UdpSocket>, resolver: Arc<Resolver>, limit: u32) {
    let waiting = Arc::new(Semaphore::new(MAX_WAITING));
    let mut rates = Rates::new(Instant::now(), limit);
    let mut tasks = JoinSet::new();
    let mut datagram = [0; MAX_DATAGRAM];
    loop {
        while tasks.try_join_next().is_some() {}
        let (length, client) = match socket.recv_from(&mut datagram).await {
            Ok(received) => received,
            Err(error) => {
                tracing::debug!(%error, "no question could be received");
                sleep(RETRY).await;
                continue;
            }
        };
        if !rates.allow(client.ip(), Instant::now()) {
            continue;
        }
        let question = &datagram[..length];
        if let Some(answer) = resolver.answer_at_once(question, client.ip(), QuestionTransport::Udp) {
            // An answer that is lost is asked for again.
            let _ = socket.send_to(&answer, client).await;
            continue;
        }
        let Ok(place) = waiting.clone().try_acquire_owned() else { continue };
        let (socket, resolver, question) = (socket.clone(), resolver.clone(), question.to_vec());
        tasks.spawn(async move {
            if let Some(answer) = resolver.answer(&question, client.ip(), QuestionTransport::Udp).await {
                let _ = socket.send_to(&answer, client).await;
            }
            drop(place);
        });
    }
}

/// Counts the questions of each client in this second.
struct Rates {
    since: Instant,
    limit: u32,
    counts: HashMap<IpAddr, u32>,
}

impl Rates {
    fn new(now: Instant, limit: u32) -> Self {
        Self { since: now, limit, counts: HashMap::new() }
    }

    /// Counts a question. Returns whether it is one of those that are allowed.
    fn allow(&mut self, client: IpAddr, now: Instant) -> bool {
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            *self = Self::new(now, self.limit);
        }
        let count = self.counts.entry(client).or_default();
        *count += 1;
        *count <= self.limit
    }
}

async fn accept_all(listener: Arc<TcpListener>, resolver: Arc<Resolver>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, client)) => {
                connections.spawn(answer_connection(stream, client.ip(), resolver.clone()));
            }
            Err(error) => {
                tracing::debug!(%error, "no connection for questions could be accepted");
                sleep(RETRY).await;
            }
        }
    }
}

async fn answer_connection(mut stream: TcpStream, client: IpAddr, resolver: Arc<Resolver>) {
    while let Ok(Ok(question)) = timeout(IDLE, read_message(&mut stream)).await {
        let Some(answer) = resolver.answer(&question, client, QuestionTransport::Tcp).await else { return };
        match timeout(IDLE, write_message(&mut stream, &answer)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_asks_too_often_is_not_heard_until_the_next_second_and_others_are() {
        let start = Instant::now();
        let (loud, quiet) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut rates = Rates::new(start, MAX_PER_SECOND);
        for _ in 0..MAX_PER_SECOND {
            assert!(rates.allow(loud, start));
        }
        assert!(!rates.allow(loud, start));
        assert!(rates.allow(quiet, start));
        assert!(rates.allow(loud, start + Duration::from_secs(1)));
    }
}
