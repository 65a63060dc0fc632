//! Failures between the ingress of one host and the pods of another.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gate::fixtures::endpoint;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::ids::NodeName;
use model::network::endpoint::{Endpoint, EndpointState};
use model::network::ingress::HttpProtocol;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tunnel::{Peer, ProxyKey};

use super::fixture::{Client, FakePod, Fixture, Pods, eventually, get, row, rule, text};
use crate::IngressConfig;

async fn before_another_host(pod: &FakePod) -> Fixture {
    let rules = vec![rule(pod.port, HttpProtocol::Http)];
    Fixture::start_with(Pods::OnAnotherHost, IngressConfig::default(), rules).await
}

async fn http2_before_another_host(pod: &FakePod) -> Fixture {
    let config = IngressConfig { threads: 1, ..IngressConfig::default() };
    Fixture::start_with(Pods::OnAnotherHost, config, vec![rule(pod.port, HttpProtocol::H2c)]).await
}

fn post(body: Vec<u8>) -> Request<Full<Bytes>> {
    Request::post("/").header("host", "web.example").body(Full::from(body)).unwrap()
}

fn get_http2() -> Request<Full<Bytes>> {
    Request::get("http://web.example/").body(Full::default()).unwrap()
}

fn post_http2(body: Vec<u8>) -> Request<Full<Bytes>> {
    Request::post("http://web.example/").body(Full::from(body)).unwrap()
}

#[tokio::test]
async fn an_answered_request_has_left_the_gate_of_the_other_host() {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let fixture = before_another_host(&pod).await;
    fixture.set_only_pod("p");
    let response = fixture.request(post(vec![b'x'; 1_000_000])).await;
    assert!(text(response).await.starts_with("p 1000000 POST /"));
    let row = row("p");
    fixture.gates.close(&row.pod, &row.assignment);
    let drained = fixture.gates.drained(&row.pod, &row.assignment, Duration::from_secs(10)).await;
    assert_eq!(drained.unwrap().cut, 0);
}

#[tokio::test]
async fn the_requests_of_a_client_share_a_connection_to_the_pod() {
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = accepted.clone();
    let pod = FakePod::with(0, move |stream| {
        count.fetch_add(1, Ordering::SeqCst);
        async move {
            let service = service_fn(async |request: Request<Incoming>| {
                let length = request.into_body().collect().await.unwrap().to_bytes().len();
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(length.to_string())))
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        }
    })
    .await;
    let fixture = before_another_host(&pod).await;
    fixture.set_only_pod("p");
    let mut client = Client::connect(fixture.address).await;
    // With the second answer the pod counts as keeping its connections.
    for length in [0, 0, 1, 0, 100_000, 0, 0, 17] {
        let request = if length == 0 { get("/") } else { post(vec![b'x'; length]) };
        assert_eq!(text(client.send(request).await.unwrap()).await, length.to_string());
    }
    assert_eq!(accepted.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn requests_by_http2_share_a_connection_to_the_pod_one_after_another() {
    let (pod, counts) = FakePod::http2("p").await;
    let fixture = http2_before_another_host(&pod).await;
    fixture.set_only_pod("p");
    let mut client = Client::connect_http2(fixture.address).await;
    for length in [0, 1, 0, 1_000_000, 0, 17] {
        let request = if length == 0 { get_http2() } else { post_http2(vec![b'x'; length]) };
        let answer = text(client.send(request).await.unwrap()).await;
        assert!(answer.starts_with(&format!("p {length} ")), "{answer}");
        // Meanwhile the pod pings, and the answers wait for the next request.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let row = row("p");
        assert_eq!(fixture.gates.close(&row.pod, &row.assignment), 0, "an idle connection counts");
        fixture.gates.set(row);
    }
    assert_eq!(counts[0].load(Ordering::SeqCst), 1);
    // Each concurrent request has its own connection.
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..4 {
        clients.push(Client::connect_http2(fixture.address).await);
    }
    for _ in 0..5 {
        let requests = clients.iter_mut().map(|client| client.send(post_http2(vec![b'x'; 10])));
        for response in futures_util::future::join_all(requests).await {
            assert!(text(response.unwrap()).await.starts_with("p 10 "));
        }
    }
    assert!(counts[0].load(Ordering::SeqCst) <= 4);
    fixture.set_endpoints(vec![]);
    let accepted = || counts.each_ref().map(|count| count.load(Ordering::SeqCst));
    eventually(async || accepted()[0] == accepted()[1]).await;
}

#[tokio::test]
async fn a_request_by_http2_that_its_client_gives_up_leaves_the_gate() {
    let pod = FakePod::with(0, async |stream: TcpStream| {
        let service = service_fn(async |_: Request<Incoming>| {
            std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>().await
        });
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = server.serve_connection(TokioIo::new(stream), service).await;
    })
    .await;
    let fixture = http2_before_another_host(&pod).await;
    fixture.set_only_pod("p");
    let row = row("p");
    let in_flight = || {
        let count = fixture.gates.close(&row.pod, &row.assignment);
        fixture.gates.set(row.clone());
        count
    };
    let mut client = Client::connect_http2(fixture.address).await;
    let waiting = tokio::spawn(async move { client.send(post_http2(vec![b'x'; 10])).await.map(|_| ()) });
    eventually(async || in_flight() == 1).await;
    waiting.abort();
    eventually(async || in_flight() == 0).await;
}

#[tokio::test]
async fn a_gate_that_has_closed_meanwhile_refuses_what_comes_on_kept_connections() {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let client = async |address| Client::connect(address).await;
    let requests = [get("/"), post(vec![b'x'; 100])];
    refuses_on_kept_connections(before_another_host(&pod).await, client, requests).await;
    let (pod, _) = FakePod::http2("p").await;
    let client = async |address| Client::connect_http2(address).await;
    let fixture = http2_before_another_host(&pod).await;
    refuses_on_kept_connections(fixture, client, [get_http2(), post_http2(vec![b'x'; 100])]).await;
}

async fn refuses_on_kept_connections(
    fixture: Fixture,
    client: impl AsyncFn(SocketAddr) -> Client,
    requests: [Request<Full<Bytes>>; 2],
) {
    let mut client = client(fixture.address).await;
    fixture.gates.set(row("a"));
    fixture.set_endpoints(["a", "b"].map(|name| endpoint(name, EndpointState::Ready)).into());
    for _ in 0..4 {
        assert_eq!(client.send(requests[0].clone()).await.unwrap().status(), StatusCode::OK);
    }
    fixture.gates.set(row("b"));
    fixture.gates.close(&row("a").pod, &row("a").assignment);
    for number in 0..20 {
        let request = requests[number % 2].clone();
        assert_eq!(client.send(request).await.unwrap().status(), StatusCode::OK);
    }
    let drained = fixture.gates.drained(&row("a").pod, &row("a").assignment, Duration::ZERO).await;
    assert_eq!(drained.unwrap().cut, 0);
}

#[tokio::test]
async fn a_host_that_falls_silent_holds_a_request_on_a_kept_connection_up_for_as_long_as_a_connect() {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let config = IngressConfig { threads: 1, ..IngressConfig::default() };
    let connect_within = config.connect_within;
    let fixture =
        Fixture::start_with(Pods::OnAnotherHost, config, vec![rule(pod.port, HttpProtocol::Http)]).await;
    fixture.gates.set(row("a"));
    fixture.gates.set(row("b"));
    let near = endpoint("a", EndpointState::Ready);
    let far = Endpoint { node: NodeName::new("worker2").unwrap(), ..endpoint("b", EndpointState::Ready) };
    let real = fixture.peers.of_node(&near.node).unwrap();
    let cable = Cable::to(real.address).await;
    fixture.peers.insert(far.node.clone(), Peer { address: cable.address, ..real });
    for request in [|| get("/"), || post(vec![b'x'; 100])] {
        fixture.set_endpoints(vec![far.clone()]);
        let mut client = Client::connect(fixture.address).await;
        assert_eq!(client.send(get("/")).await.unwrap().status(), StatusCode::OK);
        fixture.set_endpoints(vec![far.clone(), near.clone()]);
        cable.is_cut.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        for _ in 0..8 {
            assert_eq!(client.send(request()).await.unwrap().status(), StatusCode::OK);
        }
        assert!(begun.elapsed() < connect_within * 3, "{:?}", begun.elapsed());
        cable.is_cut.store(false, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn no_request_waits_for_a_host_that_is_known_to_be_silent_until_it_answers() {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let connect_within = Duration::from_millis(500);
    let config = IngressConfig { connect_within, ..IngressConfig::default() };
    let fixture =
        Fixture::start_with(Pods::OnAnotherHost, config, vec![rule(pod.port, HttpProtocol::Http)]).await;
    let worker2 = NodeName::new("worker2").unwrap();
    let far = |name| Endpoint { node: worker2.clone(), ..endpoint(name, EndpointState::Ready) };
    let near = endpoint("near", EndpointState::Ready);
    let real = fixture.peers.of_node(&near.node).unwrap();
    let cable = Cable::to(real.address).await;
    fixture.peers.insert(worker2.clone(), Peer { address: cable.address, ..real });
    ["near", "a", "b"].into_iter().for_each(|name| fixture.gates.set(row(name)));
    cable.is_cut.store(true, Ordering::SeqCst);
    fixture.set_endpoints(vec![far("a")]);
    let waiting = fixture.request(get("/"));
    assert!(tokio::time::timeout(connect_within * 2, waiting).await.is_err(), "there is no other pod");
    // These pods have no recorded refusals. The time suffices for several questions to the host.
    fixture.set_endpoints(vec![far("a"), far("b"), near]);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        let asked = Instant::now();
        assert_eq!(fixture.request(get("/")).await.status(), StatusCode::OK);
        assert!(asked.elapsed() < connect_within / 2, "{:?}", asked.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fixture.set_endpoints(vec![far("b")]);
    cable.is_cut.store(false, Ordering::SeqCst);
    assert_eq!(fixture.request(get("/")).await.status(), StatusCode::OK);
}

/// Like a proxy that was killed and restarted.
#[tokio::test]
async fn a_host_whose_proxy_is_back_is_used_at_once() {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let fixture = before_another_host(&pod).await;
    fixture.gates.set(row("p"));
    fixture.set_endpoints(vec![endpoint("p", EndpointState::Ready)]);
    let node = endpoint("p", EndpointState::Ready).node;
    let real = fixture.peers.of_node(&node).unwrap();
    for _ in 0..8 {
        let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        fixture.peers.insert(node.clone(), Peer { address, ..real });
        let waiting = fixture.request(get("/"));
        tokio::pin!(waiting);
        assert!(tokio::time::timeout(Duration::from_millis(60), &mut waiting).await.is_err());
        let proxy = Cable::at(address, real.address).await;
        let begun = Instant::now();
        assert_eq!(waiting.await.status(), StatusCode::OK);
        assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
        drop(proxy);
    }
}

#[tokio::test]
async fn of_the_requests_that_wait_for_a_pod_one_asks_for_all() {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let fixture = before_another_host(&pod).await;
    let node = endpoint("p", EndpointState::Ready).node;
    let real = fixture.peers.of_node(&node).unwrap();
    let cable = Cable::to(real.address).await;
    fixture.peers.insert(node, Peer { address: cable.address, ..real });
    fixture.set_only_pod("p");
    let row = row("p");
    fixture.gates.close(&row.pod, &row.assignment);
    const REQUESTS: usize = 100;
    let requests = (0..REQUESTS).map(|_| async { fixture.request(get("/")).await.status() });
    let opening = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        fixture.gates.set(row.clone());
        (cable.connections.load(Ordering::SeqCst), Instant::now())
    };
    let (answers, (asked, opened)) = tokio::join!(futures_util::future::join_all(requests), opening);
    assert!(answers.iter().all(|status| *status == StatusCode::OK), "{answers:?}");
    assert!(opened.elapsed() < Duration::from_secs(4), "{:?}", opened.elapsed());
    // Each once, because they begin at the same time, and one of them from then on.
    assert!(asked < REQUESTS + 20, "asked {asked} times");
}

/// When cut, it forwards nothing, but ends nothing.
struct Cable {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
    connections: Arc<AtomicUsize>,
}

impl Cable {
    async fn to(target: SocketAddr) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), target).await
    }

    async fn at(address: SocketAddr, target: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let is_cut = Arc::new(AtomicBool::new(false));
        let connections = Arc::new(AtomicUsize::new(0));
        let (cut, count) = (is_cut.clone(), connections.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let (near, far) =
                    (stream.into_split(), TcpStream::connect(target).await.unwrap().into_split());
                tokio::spawn(pass_on_unless(cut.clone(), near.0, far.1));
                tokio::spawn(pass_on_unless(cut.clone(), far.0, near.1));
            }
        });
        Self { address, is_cut, connections }
    }
}

async fn pass_on_unless(is_cut: Arc<AtomicBool>, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if is_cut.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn what_the_gate_of_the_other_host_refuses_is_sent_to_another_pod_also_a_post() {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let fixture = before_another_host(&pod).await;
    for name in ["a", "b"] {
        fixture.gates.set(row(name));
    }
    fixture.gates.close(&row("a").pod, &row("a").assignment);
    fixture.set_endpoints(["a", "b", "c"].map(|name| endpoint(name, EndpointState::Ready)).into());
    for _ in 0..50 {
        assert_eq!(fixture.request(post(vec![b'x'; 100])).await.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn pods_behind_a_dead_or_a_false_proxy_get_nothing_and_others_answer() {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let fixture = before_another_host(&pod).await;
    fixture.gates.set(row("a"));
    fixture.gates.set(row("b"));
    let near = endpoint("a", EndpointState::Ready);
    let far = Endpoint { node: NodeName::new("worker2").unwrap(), ..endpoint("b", EndpointState::Ready) };
    let real = fixture.peers.of_node(&near.node).unwrap();
    let nothing_listens = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let dead = Peer { address: nothing_listens, ..real };
    let false_key = Peer { fingerprint: ProxyKey::generate().unwrap().fingerprint(), ..real };
    for wrong in [dead, false_key] {
        fixture.peers.insert(far.node.clone(), wrong);
        fixture.set_endpoints(vec![near.clone(), far.clone()]);
        for _ in 0..20 {
            assert_eq!(fixture.request(post(vec![b'x'; 100])).await.status(), StatusCode::OK);
        }
    }
    assert_eq!(fixture.gates.close(&row("b").pod, &row("b").assignment), 0, "it got something");
}

#[tokio::test]
async fn a_silent_proxy_holds_a_request_up_once_and_not_for_each_of_its_pods() {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let config = IngressConfig { wait: Duration::from_secs(1), ..IngressConfig::default() };
    let connect_within = config.connect_within;
    let rules = vec![rule(pod.port, HttpProtocol::Http)];
    let fixture = Fixture::start_with(Pods::OnAnotherHost, config, rules).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let node = NodeName::new("worker2").unwrap();
    let real = fixture.peers.of_node(&endpoint("a", EndpointState::Ready).node).unwrap();
    fixture.peers.insert(node.clone(), Peer { address: silent.local_addr().unwrap(), ..real });
    let far = ["b", "c", "d", "e", "f", "g", "h", "i"]
        .map(|name| Endpoint { node: node.clone(), ..endpoint(name, EndpointState::Ready) });
    fixture.set_endpoints(far.into());
    let begun = Instant::now();
    assert_eq!(fixture.request(get("/")).await.status(), StatusCode::BAD_GATEWAY);
    assert!(begun.elapsed() < connect_within * 2, "{:?}", begun.elapsed());
}
