//! Listens for DNS questions of pods over UDP and TCP.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use daemon::listen::Presence;
use gate::listening::Listening;
use routing::follow::Follower;
use store::Store;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::answer::{QuestionTransport, failure};
use super::connections::reset;
use super::forward::{Forwarder, RESOLV_CONF, read_message, write_message};
use super::resolver::Resolver;

/// The host's rules redirect port 53 of the resolver's address to it.
pub(crate) const PORT: u16 = 7053;
const MAX_DATAGRAM_BYTES: usize = 4096;
/// UDP questions of one pod; more are dropped.
const MAX_PER_SECOND: u32 = 1000;
const IDLE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(50);

pub(super) struct DnsListener {
    udp: Arc<UdpSocket>,
    tcp: Arc<TcpListener>,
}

impl DnsListener {
    pub(super) fn bind(
        address: SocketAddr,
        presence: Presence,
        listening: &Listening,
    ) -> std::io::Result<Self> {
        Ok(Self { udp: listening.udp_at(address, presence)?, tcp: listening.tcp_at(address, presence)? })
    }

    pub(super) async fn run(self, resolver: Arc<Resolver>) {
        let limit = MAX_PER_SECOND;
        tokio::join!(answer_datagrams(self.udp, resolver.clone(), limit), accept_all(self.tcp, resolver));
    }
}

/// For benches.
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

async fn answer_datagrams(socket: Arc<UdpSocket>, resolver: Arc<Resolver>, limit: u32) {
    let mut rates = Rates::new(Instant::now(), limit);
    let mut tasks = JoinSet::new();
    let mut datagram = [0; MAX_DATAGRAM_BYTES];
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
            // Clients repeat a question if its answer is lost.
            let _ = socket.send_to(&answer, client).await;
            continue;
        }
        let Ok(place) = resolver.shares.waiting_questions.take_fairly(client.ip(), usize::MAX) else {
            resolver.shares.note_refused(client.ip(), "questions that wait for an answer");
            // The program then asks elsewhere or gives up instead of waiting.
            if let Some(refusal) = failure(question, QuestionTransport::Udp) {
                let _ = socket.send_to(&refusal, client).await;
            }
            continue;
        };
        let (socket, resolver, question) = (socket.clone(), resolver.clone(), question.to_vec());
        tasks.spawn(async move {
            if let Some(answer) = resolver.answer(&question, client.ip(), QuestionTransport::Udp).await {
                let _ = socket.send_to(&answer, client).await;
            }
            drop(place);
        });
    }
}

struct Rates {
    since: Instant,
    limit: u32,
    counts: HashMap<IpAddr, u32>,
}

impl Rates {
    fn new(now: Instant, limit: u32) -> Self {
        Self { since: now, limit, counts: HashMap::new() }
    }

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
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, client)) => {
                let Ok(place) = resolver.shares.dns_connections.take_fairly(client.ip(), usize::MAX) else {
                    resolver.shares.note_refused(client.ip(), "connections for questions about names");
                    reset(stream);
                    continue;
                };
                let resolver = resolver.clone();
                connections.spawn(async move {
                    answer_connection(stream, client.ip(), resolver).await;
                    drop(place);
                });
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
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::net::Ipv4Addr;

    use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
    use hickory_proto::rr::{Name, RecordType};
    use store::LinkOptions;
    use testkit::eventually::{check, eventually};
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpSocket;

    use super::*;

    const LOUD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
    const QUIET: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

    struct SilentHost {
        resolver: Arc<Resolver>,
        udp: SocketAddr,
        tcp: SocketAddr,
        _silent: (UdpSocket, tempfile::TempDir),
        _tasks: JoinSet<()>,
    }

    impl SilentHost {
        async fn new() -> Self {
            let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("resolv.conf");
            std::fs::write(&file, "nameserver 127.0.0.1\n").unwrap();
            let forwarder = Forwarder::on_port(file, silent.local_addr().unwrap().port());
            let store = Store::new("redis://127.0.0.1:1".parse().unwrap(), LinkOptions::default());
            let (follower, snapshot) = Follower::new(store.clone(), None);
            let resolver = Resolver::new(store, follower.interest(), snapshot, Arc::default(), forwarder);
            let resolver = Arc::new(resolver);
            let udp = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
            let tcp = Arc::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
            let addresses = (udp.local_addr().unwrap(), tcp.local_addr().unwrap());
            let mut tasks = JoinSet::new();
            tasks.spawn(answer_datagrams(udp, resolver.clone(), u32::MAX));
            tasks.spawn(accept_all(tcp, resolver.clone()));
            let (udp, tcp) = addresses;
            Self { resolver, udp, tcp, _silent: (silent, folder), _tasks: tasks }
        }

        async fn connect(&self, from: Ipv4Addr) -> std::io::Result<TcpStream> {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind((from, 0).into()).unwrap();
            socket.connect(self.tcp).await
        }
    }

    fn question(name: &str, kind: RecordType) -> Vec<u8> {
        let mut question = Message::new(7, MessageType::Query, OpCode::Query);
        question.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
        question.to_vec().unwrap()
    }

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

    #[tokio::test]
    async fn a_pod_whose_questions_all_wait_is_refused_more_and_another_one_is_not() {
        let host = SilentHost::new().await;
        let loud = UdpSocket::bind((LOUD, 0)).await.unwrap();
        let dead = question("gone.example.", RecordType::A);
        let mut bytes = [0; 512];
        let refusal = async {
            loop {
                loud.send_to(&dead, host.udp).await.unwrap();
                if let Ok(length) = loud.try_recv(&mut bytes) {
                    return Message::from_vec(&bytes[..length]).unwrap();
                }
                tokio::task::yield_now().await;
            }
        };
        let refusal = timeout(Duration::from_secs(4), refusal).await.unwrap();
        assert_eq!(refusal.metadata.response_code, ResponseCode::ServFail);
        let waiting = &host.resolver.shares.waiting_questions;
        let quiet = UdpSocket::bind((QUIET, 0)).await.unwrap();
        quiet.send_to(&dead, host.udp).await.unwrap();
        eventually("the question of another pod waits", || async {
            check(waiting.count_of(QUIET.into()) == 1, || "not yet".to_owned())
        })
        .await;
    }

    #[tokio::test]
    async fn a_pod_with_too_many_connections_for_questions_is_reset_and_another_one_is_answered() {
        let host = SilentHost::new().await;
        let mut idle = Vec::new();
        for _ in 0..200 {
            idle.push(host.connect(LOUD).await);
        }
        let refused = match idle.pop().unwrap() {
            Ok(mut stream) => timeout(Duration::from_secs(4), stream.read_u8()).await.unwrap().unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionReset);
        let mut quiet = host.connect(QUIET).await.unwrap();
        write_message(&mut quiet, &question("kubeleet.", RecordType::SOA)).await.unwrap();
        let answer = timeout(Duration::from_secs(4), read_message(&mut quiet)).await.unwrap().unwrap();
        assert_eq!(Message::from_vec(&answer).unwrap().metadata.response_code, ResponseCode::NoError);
    }
}
