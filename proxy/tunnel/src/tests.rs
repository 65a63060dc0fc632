//! Two ends of the tunnel in one process, with a pod that echoes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gate::fixtures::local_pod;
use gate::workers::Workers;
use gate::{EnterError, Gates};
use model::ids::{AssignmentId, NodeName, PodId};
use model::network::endpoint::{Endpoint, EndpointState};
use model::network::handover::LocalPod;
use testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::opened_ahead::OpenedAhead;
use super::*;

const SOON: Duration = Duration::from_secs(10);

fn endpoint() -> Endpoint {
    Endpoint {
        pod: PodId::new("p").unwrap(),
        replica: 0,
        node: NodeName::new("w2").unwrap(),
        assignment: AssignmentId::new("a").unwrap(),
        state: EndpointState::Ready,
    }
}

async fn echo() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    port
}

struct Hosts {
    gates: Arc<Gates>,
    known: Arc<Peers>,
    pod_host: Peer,
    dialer: TunnelDialer,
    stop: tokio_util::sync::DropGuard,
    running: tokio::task::JoinHandle<()>,
}

async fn hosts() -> Hosts {
    hosts_with(|listener| listener).await
}

async fn hosts_with(change: impl FnOnce(TunnelListener) -> TunnelListener) -> Hosts {
    let gates = Arc::new(Gates::default());
    gates.set(LocalPod { assignment: endpoint().assignment, start: 1, ..local_pod("p") });
    let (here, there) = (ProxyKey::generate().unwrap(), ProxyKey::generate().unwrap());
    let known = Arc::new(Peers::default());
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    known.set(HashMap::from([(
        NodeName::new("w1").unwrap(),
        Peer { address: any, fingerprint: there.fingerprint() },
    )]));
    let listener = Arc::new(TcpListener::bind(any).await.unwrap());
    let workers = Arc::new(Workers::new(gates.clone()));
    let listener = TunnelListener::on(listener, &here, known.clone(), workers).unwrap();
    let pod_host = Peer { address: listener.address().unwrap(), fingerprint: here.fingerprint() };
    let stop = CancellationToken::new();
    let running = tokio::spawn(change(listener).run(stop.clone()));
    let dialer = dialer(there, pod_host);
    Hosts { gates, known, pod_host, dialer, stop: stop.drop_guard(), running }
}

fn dialer(key: ProxyKey, peer: Peer) -> TunnelDialer {
    TunnelDialer::new(Arc::new(key), only(peer))
}

fn only(peer: Peer) -> Arc<Peers> {
    let peers = Peers::default();
    peers.set(HashMap::from([(endpoint().node, peer)]));
    Arc::new(peers)
}

fn dialer_like(dialer: &TunnelDialer, peer: Peer) -> TunnelDialer {
    TunnelDialer::new(dialer.key.clone(), only(peer))
}

#[tokio::test]
async fn a_connection_reaches_the_pod_and_each_side_ends_by_itself() {
    let (hosts, port) = (hosts().await, echo().await);
    let mut stream = hosts.dialer.connect(&endpoint(), port, SOON).await.unwrap();
    let sent: Vec<u8> = (0..1_000_000u32).map(|number| number as u8).collect();
    let (mut read, mut write) = tokio::io::split(&mut stream);
    let mut received = Vec::new();
    let write_all = async {
        write.write_all(&sent).await.unwrap();
        write.shutdown().await.unwrap();
    };
    let (_, read) = tokio::join!(write_all, read.read_to_end(&mut received));
    read.unwrap();
    assert!(received == sent, "{} bytes came back of {}", received.len(), sent.len());
    let (pod, assignment) = (endpoint().pod, endpoint().assignment);
    hosts.gates.close(&pod, &assignment);
    assert_eq!(hosts.gates.drained(&pod, &assignment, SOON).await.unwrap().cut, 0);
}

#[tokio::test]
async fn what_the_gate_refuses_is_told_and_an_open_connection_is_cut_when_its_time_is_over() {
    let (hosts, port) = (hosts().await, echo().await);
    let mut open = hosts.dialer.connect(&endpoint(), port, SOON).await.unwrap();
    let (pod, assignment) = (endpoint().pod, endpoint().assignment);
    assert_eq!(hosts.gates.close(&pod, &assignment), 1);
    let refused = hosts.dialer.connect(&endpoint(), port, SOON).await.unwrap_err();
    assert!(matches!(refused, TunnelError::Refused(EnterError::Closed)), "{refused}");
    let other = Endpoint { assignment: AssignmentId::new("b").unwrap(), ..endpoint() };
    let refused = hosts.dialer.connect(&other, port, SOON).await.unwrap_err();
    assert!(matches!(refused, TunnelError::Refused(EnterError::Unknown)), "{refused}");
    assert_eq!(hosts.gates.drained(&pod, &assignment, Duration::from_millis(50)).await.unwrap().cut, 1);
    let ended = tokio::time::timeout(SOON, open.read_u8()).await.unwrap();
    assert!(ended.is_err(), "{ended:?}");
}

/// A host that ended connections would be taken for dead, with all its pods.
#[tokio::test]
async fn a_host_that_has_as_many_connections_as_it_takes_refuses_further_ones_and_is_not_dead() {
    let hosts = hosts_with(|listener| listener.with_connections(1)).await;
    let port = echo().await;
    let open = hosts.dialer.connect(&endpoint(), port, SOON).await.unwrap();
    for _ in 0..3 {
        let refused = hosts.dialer.connect(&endpoint(), port, SOON).await.unwrap_err();
        assert!(matches!(refused, TunnelError::Refused(EnterError::Closed)), "{refused}");
    }
    drop(open);
    eventually::eventually("a connection is let in", async || {
        let connected = hosts.dialer.connect(&endpoint(), port, SOON).await;
        eventually::check(connected.is_ok(), || "it is refused".to_owned())
    })
    .await;
}

async fn kept(hosts: &Hosts, port: u16) -> KeptStream {
    let mut stream = hosts.dialer.connect_for_requests(&endpoint(), port, SOON).await.unwrap();
    assert_eq!(ask(&mut stream, b"first").await.unwrap(), b"first");
    end(&stream).await;
    stream
}

async fn ask(stream: &mut KeptStream, request: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(request).await?;
    stream.flush().await?;
    let mut answer = vec![0; request.len()];
    tokio::time::timeout(SOON, stream.read_exact(&mut answer)).await.unwrap()?;
    Ok(answer)
}

async fn end(stream: &KeptStream) {
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(stream.end(cx))).await);
}

async fn idle(hosts: &Hosts) {
    let (pod, assignment) = (endpoint().pod, endpoint().assignment);
    let row = hosts.gates.row(&assignment).unwrap();
    hosts.gates.close(&pod, &assignment);
    assert_eq!(hosts.gates.drained(&pod, &assignment, SOON).await.unwrap().cut, 0);
    hosts.gates.set(row);
}

#[tokio::test]
async fn each_request_on_a_kept_connection_is_let_in_anew_and_an_idle_one_counts_nowhere() {
    let (hosts, port) = (hosts().await, echo().await);
    let mut stream = kept(&hosts, port).await;
    let (pod, assignment) = (endpoint().pod, endpoint().assignment);
    for waits in [false, true, false, true] {
        idle(&hosts).await;
        if waits {
            stream.begin_and_wait().await.unwrap()
        } else {
            stream.begin()
        };
        let request = vec![b'x'; 100_000];
        assert!(ask(&mut stream, &request).await.unwrap() == request);
        let row = hosts.gates.row(&assignment).unwrap();
        assert_eq!(hosts.gates.close(&pod, &assignment), 1);
        hosts.gates.set(row);
        end(&stream).await;
    }
}

#[tokio::test]
async fn requests_that_follow_at_once_are_each_let_in_and_counted_once() {
    let (hosts, port) = (hosts().await, echo().await);
    let mut stream = kept(&hosts, port).await;
    let (pod, assignment) = (endpoint().pod, endpoint().assignment);
    for number in 0..100_u8 {
        stream.begin();
        assert_eq!(ask(&mut stream, &[number]).await.unwrap(), [number]);
        let row = hosts.gates.row(&assignment).unwrap();
        assert_eq!(hosts.gates.close(&pod, &assignment), 1);
        hosts.gates.set(row);
        end(&stream).await;
    }
    hosts.gates.close(&pod, &assignment);
    stream.begin();
    assert!(ask(&mut stream, b"late").await.is_err());
    assert_eq!(stream.refusal(), Some(EnterError::Closed));
}

#[tokio::test]
async fn what_the_gate_refuses_on_a_kept_connection_never_reaches_the_pod() {
    let (hosts, port) = (hosts().await, echo().await);
    let (pod, assignment) = (endpoint().pod, endpoint().assignment);
    let (mut asks, waits) = (kept(&hosts, port).await, kept(&hosts, port).await);
    idle(&hosts).await;
    hosts.gates.close(&pod, &assignment);
    asks.begin();
    let refused = async {
        let _ = asks.write_all(&vec![b'x'; 4_000_000]).await;
        asks.read_u8().await
    };
    assert!(tokio::time::timeout(SOON, refused).await.unwrap().is_err());
    assert_eq!(asks.refusal(), Some(EnterError::Closed));
    assert_eq!(waits.begin_and_wait().await, Err(NotAccepted::Refused));
    assert_eq!(hosts.gates.drained(&pod, &assignment, SOON).await.unwrap().cut, 0);
}

#[tokio::test]
async fn a_kept_connection_to_containers_that_were_restarted_is_refused() {
    let (hosts, port) = (hosts().await, echo().await);
    let stream = kept(&hosts, port).await;
    idle(&hosts).await;
    hosts.gates.set(LocalPod { assignment: endpoint().assignment, start: 2, ..local_pod("p") });
    assert_eq!(stream.begin_and_wait().await, Err(NotAccepted::Refused));
    assert_eq!(kept(&hosts, port).await.begin_and_wait().await, Ok(()));
}

#[tokio::test]
async fn a_request_on_a_kept_connection_is_cut_when_its_time_is_over() {
    let (hosts, port) = (hosts().await, echo().await);
    let mut stream = kept(&hosts, port).await;
    stream.begin_and_wait().await.unwrap();
    let (pod, assignment) = (endpoint().pod, endpoint().assignment);
    hosts.gates.close(&pod, &assignment);
    assert_eq!(hosts.gates.drained(&pod, &assignment, Duration::from_millis(50)).await.unwrap().cut, 1);
    let ended = tokio::time::timeout(SOON, stream.read_u8()).await.unwrap();
    assert!(ended.is_err(), "{ended:?}");
}

#[tokio::test]
async fn a_pod_that_takes_its_time_is_told_apart_from_a_host_that_is_silent() {
    let hosts = hosts().await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut stream = hosts.dialer.connect_for_requests(&endpoint(), port, SOON).await.unwrap();
    end(&stream).await;
    stream.begin();
    stream.write_all(b"x").await.unwrap();
    stream.flush().await.unwrap();
    assert!(!stream.has_heard());
    let answer = tokio::time::timeout(Duration::from_secs(2), stream.read_u8()).await;
    assert!(answer.is_err() && stream.has_heard(), "{answer:?}");
}

struct Switch {
    peer: Peer,
    count: Arc<AtomicUsize>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Switch {
    async fn before(host: Peer) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let peer = Peer { address: listener.local_addr().unwrap(), ..host };
        let count = Arc::<AtomicUsize>::default();
        let counted = count.clone();
        let accepting = tokio::spawn(async move {
            let mut passing = tokio::task::JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                passing.spawn(async move {
                    let mut far = TcpStream::connect(host.address).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        Self { peer, count, accepting }
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    async fn cut(self) -> SocketAddr {
        self.accepting.abort();
        let _ = self.accepting.await;
        self.peer.address
    }
}

async fn dialer_through_switch(hosts: &Hosts) -> (TunnelDialer, Switch) {
    let switch = Switch::before(hosts.pod_host).await;
    (dialer_like(&hosts.dialer, switch.peer), switch)
}

async fn says_hello(dialer: &TunnelDialer, port: u16) {
    let mut stream = dialer.connect(&endpoint(), port, SOON).await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"hello");
}

#[tokio::test]
async fn the_next_connection_is_opened_ahead_and_counts_nowhere_until_it_is_used() {
    let (hosts, port) = (hosts().await, echo().await);
    let (dialer, switch) = dialer_through_switch(&hosts).await;
    let peer = switch.peer;
    assert_eq!(dialer.ahead.waiting(&peer), 0);
    for used in 1..4 {
        says_hello(&dialer, port).await;
        eventually("one waits", async || dialer.ahead.waiting(&peer) == 1).await;
        assert_eq!(switch.count(), used + 1);
        idle(&hosts).await;
    }
    hosts.gates.close(&endpoint().pod, &endpoint().assignment);
    let refused = dialer.connect(&endpoint(), port, SOON).await.unwrap_err();
    assert!(matches!(refused, TunnelError::Refused(EnterError::Closed)), "{refused}");
}

#[tokio::test]
async fn of_many_connections_at_a_time_few_are_opened_ahead() {
    let (hosts, port) = (hosts().await, echo().await);
    let (dialer, switch) = dialer_through_switch(&hosts).await;
    for _ in 0..3 {
        futures_util::future::join_all((0..20).map(|_| says_hello(&dialer, port))).await;
        eventually("some wait", async || dialer.ahead.waiting(&switch.peer) == 4).await;
    }
    assert!(switch.count() <= 64, "{}", switch.count());
}

#[tokio::test]
async fn a_connection_that_has_ended_while_it_waited_is_replaced() {
    let (hosts, port) = (hosts().await, echo().await);
    let (dialer, switch) = dialer_through_switch(&hosts).await;
    says_hello(&dialer, port).await;
    let (peer, ahead) = (switch.peer, dialer.ahead.clone());
    eventually("one waits", async || ahead.waiting(&peer) == 1).await;
    let address = switch.cut().await;
    let listener = TcpListener::bind(address).await.unwrap();
    let far = hosts.pod_host.address;
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let mut far = TcpStream::connect(far).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
        }
    });
    says_hello(&dialer, port).await;
}

#[tokio::test]
async fn a_connection_that_waited_is_refused_if_its_key_was_taken_off_the_list() {
    let (hosts, port) = (hosts().await, echo().await);
    says_hello(&hosts.dialer, port).await;
    eventually("one waits", async || hosts.dialer.ahead.waiting(&hosts.pod_host) == 1).await;
    idle(&hosts).await;
    hosts.known.set(HashMap::new());
    let error = hosts.dialer.connect(&endpoint(), port, SOON).await.unwrap_err();
    assert!(matches!(error, TunnelError::Unreachable { .. }), "{error}");
    assert_eq!(hosts.gates.close(&endpoint().pod, &endpoint().assignment), 0, "it was let in");
}

#[tokio::test]
async fn a_connection_that_nobody_uses_does_not_wait_for_ever() {
    let (hosts, port) = (hosts().await, echo().await);
    let (mut dialer, switch) = dialer_through_switch(&hosts).await;
    dialer.ahead = Arc::new(OpenedAhead::for_time(Duration::from_millis(300)));
    says_hello(&dialer, port).await;
    eventually("one waits", async || dialer.ahead.waiting(&switch.peer) == 1).await;
    eventually("none waits", async || dialer.ahead.waiting(&switch.peer) == 0).await;
    assert_eq!(switch.count(), 2);
    says_hello(&dialer, port).await;
}

#[tokio::test]
async fn a_process_that_hands_over_is_not_kept_by_what_was_opened_ahead() {
    let hosts = hosts().await;
    let port = echo().await;
    says_hello(&hosts.dialer, port).await;
    let peer = hosts.pod_host;
    eventually("one waits", async || hosts.dialer.ahead.waiting(&peer) == 1).await;
    let Hosts { dialer, stop, running, .. } = hosts;
    drop(stop);
    tokio::time::timeout(SOON, running).await.unwrap().unwrap();
    assert!(dialer.ahead.take(&peer).is_none());
}

#[tokio::test]
async fn a_pod_that_accepts_nothing_is_told_apart_from_an_unreachable_proxy() {
    let hosts = hosts().await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let pod = socket.listen(0).unwrap();
    let address = pod.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(connected) =
        tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await
    {
        waiting.push(connected.unwrap());
    }
    let within = CONNECT_WITHIN;
    let error = hosts.dialer.connect(&endpoint(), address.port(), within).await.unwrap_err();
    assert!(matches!(error, TunnelError::NotListening(_)), "{error}");
}

#[tokio::test]
async fn a_port_without_a_listener_is_told_apart_from_an_unreachable_proxy() {
    let hosts = hosts().await;
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap().port();
    let error = hosts.dialer.connect(&endpoint(), free, SOON).await.unwrap_err();
    assert!(matches!(error, TunnelError::NotListening(_)), "{error}");
    let gone = Peer { address: SocketAddr::from((Ipv4Addr::LOCALHOST, free)), ..hosts.pod_host };
    let error = dialer(ProxyKey::generate().unwrap(), gone).connect(&endpoint(), 1, SOON).await.unwrap_err();
    assert!(matches!(error, TunnelError::Unreachable { .. }), "{error}");
    let alone = TunnelDialer::new(Arc::new(ProxyKey::generate().unwrap()), Arc::default());
    let error = alone.connect(&endpoint(), 1, SOON).await.unwrap_err();
    assert_eq!(error.to_string(), "node w2 has no proxy: start `kubeleet proxy` there");
}

#[tokio::test]
async fn who_is_not_on_the_list_is_refused_on_both_ends() {
    let (hosts, port) = (hosts().await, echo().await);
    let other = dialer(ProxyKey::generate().unwrap(), hosts.pod_host);
    let error = other.connect(&endpoint(), port, SOON).await.unwrap_err();
    assert!(matches!(error, TunnelError::Unreachable { .. }), "{error}");
    let (pod, assignment) = (endpoint().pod, endpoint().assignment);
    assert_eq!(hosts.gates.close(&pod, &assignment), 0, "nothing was let in");

    let pretender = Peer { fingerprint: ProxyKey::generate().unwrap().fingerprint(), ..hosts.pod_host };
    let key = ProxyKey::generate().unwrap();
    hosts.known.set(HashMap::from([(endpoint().node, Peer { fingerprint: key.fingerprint(), ..pretender })]));
    let error = dialer(key, pretender).connect(&endpoint(), port, SOON).await.unwrap_err();
    assert!(matches!(error, TunnelError::Unreachable { .. }), "{error}");
}

#[test]
fn a_key_is_made_once_and_only_its_owner_can_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proxy.key");
    let made = ProxyKey::load_or_create(&path).unwrap();
    assert_eq!(ProxyKey::load_or_create(&path).unwrap().fingerprint(), made.fingerprint());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    std::fs::write(&path, b"broken").unwrap();
    assert!(ProxyKey::load_or_create(&path).unwrap_err().to_string().contains("remove it"));
}

#[test]
fn a_peer_is_read_as_it_is_written() {
    let peer = Peer {
        address: "10.0.0.1:7079".parse().unwrap(),
        fingerprint: ProxyKey::generate().unwrap().fingerprint(),
    };
    assert_eq!(peer.to_string().parse::<Peer>(), Ok(peer));
    for text in ["", "10.0.0.1:7079", "10.0.0.1 ab", "10.0.0.1:7079 zz", &format!("{peer}0")] {
        assert!(text.parse::<Peer>().is_err(), "{text:?}");
    }
}
