//! Processes take over the sockets under load.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gate::Gates;
use gate::fixtures::{endpoint, follower_of};
use gate::listening::Listening;
use hyper::StatusCode;
use model::network::endpoint::EndpointState;
use model::network::ingress::{HttpProtocol, IngressRule, TcpRule};
use parking_lot::Mutex;
use routing::route::RouteTable;
use routing::snapshot::RoutingSnapshot;
use testkit::ports::free_port;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::fixture::{Client, FakePod, Fixture, Pods, eventually, get, row, rule, rule_with, text, web};
use crate::{Ingress, IngressConfig};

struct Host {
    gates: Arc<Gates>,
    snapshot: watch::Sender<Arc<RoutingSnapshot>>,
    config: IngressConfig,
}

impl Host {
    fn new(rules: Vec<IngressRule>, config: IngressConfig) -> Self {
        let gates = Arc::new(Gates::default());
        gates.set(row("p0"));
        let routes = Arc::new(RouteTable::new(rules.into_iter().map(|rule| (web(), rule)).collect()));
        let endpoint = Arc::new(endpoint("p0", EndpointState::Ready));
        let snapshot = RoutingSnapshot { routes, endpoints: [(web(), [endpoint].into())].into() };
        Self { gates, snapshot: watch::Sender::new(Arc::new(snapshot)), config }
    }

    fn start(&self, former: Option<&Listening>) -> Listening {
        let alone = || Listening::from(CancellationToken::new());
        let next = former.map_or_else(alone, follower_of);
        let (snapshot, gates) = (self.snapshot.subscribe(), self.gates.clone());
        let ingress = Ingress { snapshot, gates, tunnel: None, doubts: None, config: self.config.clone() };
        tokio::spawn(ingress.run(next.clone()));
        next
    }
}

async fn connect(address: SocketAddr, is_http2: bool) -> Client {
    if is_http2 { Client::connect_http2(address).await } else { Client::connect(address).await }
}

/// Clients repeat a request after such an error.
fn was_not_taken(error: &hyper::Error) -> bool {
    let crossed = || format!("{error:?}").contains("GoAway(b\"\", NO_ERROR, Remote)");
    error.is_canceled() || error.is_closed() || crossed()
}

async fn send_without_pause(
    address: SocketAddr,
    is_http2: bool,
    stop: Arc<AtomicBool>,
    failures: Arc<Mutex<Vec<String>>>,
) -> usize {
    let (mut client, mut answered) = (connect(address, is_http2).await, 0);
    while !stop.load(Ordering::Relaxed) {
        match client.send(get("/")).await {
            Ok(answer) if answer.status() == StatusCode::OK => {
                text(answer).await;
                answered += 1;
            }
            Err(error) if was_not_taken(&error) => client = connect(address, is_http2).await,
            other => {
                let why = match other {
                    Ok(answer) => format!("{} {}", answer.status(), text(answer).await),
                    Err(error) => format!("{error:?}"),
                };
                failures.lock().push(format!("HTTP/2: {is_http2}: {why}"));
                client = connect(address, is_http2).await;
            }
        }
    }
    answered
}

async fn requests_while(address: SocketAddr, mut replace: impl FnMut()) -> (usize, Vec<String>) {
    let (stop, failures) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::default()));
    let clients: Vec<_> = (0..16)
        .map(|number| {
            tokio::spawn(send_without_pause(address, number % 4 == 0, stop.clone(), failures.clone()))
        })
        .collect();
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(40)).await;
        replace();
    }
    stop.store(true, Ordering::Relaxed);
    let mut answered = 0;
    for client in clients {
        answered += client.await.unwrap();
    }
    let failures = std::mem::take(&mut *failures.lock());
    (answered, failures)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_fails_while_twenty_processes_take_the_sockets_one_after_the_other() {
    let pod = FakePod::http1("p0", 0, Duration::from_millis(2)).await;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let config = IngressConfig { listen: address, ..IngressConfig::default() };
    let host = Host::new(vec![rule(pod.port, HttpProtocol::Http)], config);
    let mut process = host.start(None);
    eventually(async || TcpStream::connect(address).await.is_ok()).await;
    let (answered, failures) = requests_while(address, || {
        let next = host.start(Some(&process));
        std::mem::replace(&mut process, next).hand_over();
    })
    .await;
    assert!(failures.is_empty() && answered > 100, "{answered} answered, failed: {failures:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_fails_while_processes_of_the_pods_host_take_its_sockets() {
    let pod = FakePod::http1("p0", 0, Duration::from_millis(2)).await;
    let rules = vec![rule(pod.port, HttpProtocol::Http)];
    let mut fixture = Fixture::start_with(Pods::OnAnotherHost, IngressConfig::default(), rules).await;
    fixture.set_only_pod("p0");
    let address = fixture.address;
    let mut host = fixture.another_host.take().unwrap();
    let (answered, failures) = requests_while(address, || host.follow()).await;
    assert!(failures.is_empty() && answered > 100, "{answered} answered, failed: {failures:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_upgraded_goes_on_in_the_process_that_has_accepted_it() {
    let pod = FakePod::with(0, |mut stream| async move {
        let mut bytes = [0; 1024];
        let _head = stream.read(&mut bytes).await.unwrap();
        let agreed = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
        stream.write_all(agreed).await.unwrap();
        while let Ok(length @ 1..) = stream.read(&mut bytes).await {
            stream.write_all(&bytes[..length]).await.unwrap();
        }
    })
    .await;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let config = IngressConfig { listen: address, ..IngressConfig::default() };
    let host = Host::new(vec![rule_with(pod.port, |rule| rule.upgrade = vec!["echo".to_owned()])], config);
    let first = host.start(None);
    eventually(async || TcpStream::connect(address).await.is_ok()).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n")
        .await
        .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"));
    let second = host.start(Some(&first));
    first.hand_over();
    // Longer than an idle thread needs to end.
    for _ in 0..20 {
        let mut byte = [0];
        stream.write_all(b"x").await.unwrap();
        stream.read_exact(&mut byte).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(second);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_goes_on_in_the_process_that_has_accepted_it() {
    let pod = FakePod::with(0, |mut stream| async move {
        let mut byte = [0];
        while let Ok(1) = stream.read(&mut byte).await {
            stream.write_all(&byte).await.unwrap();
        }
    })
    .await;
    let slow = FakePod::http1("p0", 0, Duration::from_millis(500)).await;
    let (address, port) = (SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())), free_port());
    let config = IngressConfig { listen: address, ..IngressConfig::default() };
    let tcp = IngressRule::Tcp(TcpRule { tcp: port, port: pod.port });
    let host = Host::new(vec![rule(slow.port, HttpProtocol::Http), tcp], config);
    let first = host.start(None);
    eventually(async || {
        TcpStream::connect(address).await.is_ok() && TcpStream::connect(("127.0.0.1", port)).await.is_ok()
    })
    .await;

    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let mut echo = async || {
        let mut byte = [0];
        stream.write_all(b"x").await.unwrap();
        stream.read_exact(&mut byte).await.unwrap();
    };
    echo().await;
    let mut kept = Client::connect(address).await;
    assert_eq!(kept.send(get("/")).await.unwrap().status(), StatusCode::OK);
    let mut asking = Client::connect(address).await;
    let in_flight = tokio::spawn(async move { asking.send(get("/")).await.unwrap().status() });
    tokio::time::sleep(Duration::from_millis(50)).await;

    let second = host.start(Some(&first));
    first.hand_over();
    assert_eq!(in_flight.await.unwrap(), StatusCode::OK);
    echo().await;
    // An idle connection ends with its next answer, as a request may be on its way.
    let last = kept.send(get("/")).await.unwrap();
    assert_eq!((last.status(), last.headers()["connection"].as_bytes()), (StatusCode::OK, &b"close"[..]));
    let new = Client::connect(address).await.send(get("/")).await.unwrap();
    assert_eq!((new.status(), new.headers().get("connection")), (StatusCode::OK, None));
    echo().await;
    drop(second);
}
