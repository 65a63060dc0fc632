//! An ingress with pods that are tasks, and clients.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::ready;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use gate::Gates;
use gate::fixtures::{endpoint, follower_of, local_pod};
use gate::listening::Listening;
use gate::workers::Workers;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use model::ids::{NodeName, ServiceName};
use model::network::endpoint::{Endpoint, EndpointState};
use model::network::handover::LocalPod;
use model::network::ingress::{HttpProtocol, HttpRule, IngressRule};
use parking_lot::Mutex;
use routing::route::RouteTable;
use routing::snapshot::RoutingSnapshot;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tunnel::{Peer, Peers, ProxyKey, TunnelDialer, TunnelListener};

use crate::client::framing::Scanner;
use crate::scanner::FramingState;
use crate::{Ingress, IngressConfig};

pub(super) struct Fixture {
    pub(super) gates: Arc<Gates>,
    pub(super) address: SocketAddr,
    pub(super) https_address: Option<SocketAddr>,
    pub(super) peers: Arc<Peers>,
    snapshot: watch::Sender<Arc<RoutingSnapshot>>,
    shutdown: CancellationToken,
    pub(super) another_host: Option<AnotherHost>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

#[derive(Clone, Copy)]
pub(super) enum Pods {
    OnThisHost,
    OnAnotherHost,
}

const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub(super) struct AnotherHost {
    key: ProxyKey,
    known: Arc<Peers>,
    gates: Arc<Gates>,
    process: Listening,
}

impl AnotherHost {
    /// Also returns a key that it accepts, and the peers with its address.
    fn start(gates: &Arc<Gates>) -> (Self, ProxyKey, Arc<Peers>) {
        let (here, key) = (ProxyKey::generate().unwrap(), ProxyKey::generate().unwrap());
        let node = NodeName::new("worker1").unwrap();
        let known = Arc::new(Peers::default());
        known.set(HashMap::from([(node.clone(), Peer { address: ANY, fingerprint: here.fingerprint() })]));
        let process = Listening::from(CancellationToken::new());
        let host = Self { key, known, gates: gates.clone(), process };
        let address = host.listen();
        let peers = Arc::new(Peers::default());
        peers.set(HashMap::from([(node, Peer { address, fingerprint: host.key.fingerprint() })]));
        (host, here, peers)
    }

    fn listen(&self) -> SocketAddr {
        let socket = self.process.tcp(ANY).unwrap();
        let listener = TunnelListener::on(
            socket,
            &self.key,
            self.known.clone(),
            Arc::new(Workers::new(self.gates.clone())),
        )
        .unwrap();
        let address = listener.address().unwrap();
        tokio::spawn(listener.run(self.process.clone()));
        address
    }

    pub(super) fn follow(&mut self) {
        let next = follower_of(&self.process);
        let former = std::mem::replace(&mut self.process, next);
        self.listen();
        former.hand_over();
    }
}

impl Drop for AnotherHost {
    fn drop(&mut self) {
        self.process.hand_over();
    }
}

pub(super) fn web() -> ServiceName {
    ServiceName::new("web").unwrap()
}

pub(super) fn rule(port: u16, protocol: HttpProtocol) -> IngressRule {
    IngressRule::Http(HttpRule {
        host: String::new(),
        path: "/".into(),
        port,
        protocol,
        tls: None,
        ..HttpRule::default()
    })
}

pub(super) fn rule_with(port: u16, change: impl FnOnce(&mut HttpRule)) -> IngressRule {
    let mut rule = HttpRule { port, ..HttpRule::default() };
    change(&mut rule);
    IngressRule::Http(rule)
}

impl Fixture {
    pub(super) async fn start(config: IngressConfig, rules: Vec<IngressRule>) -> Self {
        Self::start_with(Pods::OnThisHost, config, rules).await
    }

    pub(super) async fn start_with(pods: Pods, config: IngressConfig, rules: Vec<IngressRule>) -> Self {
        let gates = Arc::new(Gates::default());
        match pods {
            Pods::OnThisHost => Self::start_here(config, rules, gates, None, Arc::default()).await,
            Pods::OnAnotherHost => {
                let (host, here, peers) = AnotherHost::start(&gates);
                let tunnel = Arc::new(TunnelDialer::new(Arc::new(here), peers.clone()));
                let mut fixture = Self::start_here(config, rules, gates, Some(tunnel), peers).await;
                fixture.another_host = Some(host);
                fixture
            }
        }
    }

    async fn start_here(
        config: IngressConfig,
        rules: Vec<IngressRule>,
        gates: Arc<Gates>,
        tunnel: Option<Arc<TunnelDialer>>,
        peers: Arc<Peers>,
    ) -> Self {
        let rules = rules.into_iter().map(|rule| (web(), rule)).collect();
        let snapshot =
            RoutingSnapshot { routes: Arc::new(RouteTable::new(rules)), endpoints: HashMap::new() };
        let (snapshot, following) = watch::channel(Arc::new(snapshot));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let own = if tunnel.is_some() { Arc::default() } else { gates.clone() };
        let shutdown = CancellationToken::new();
        let https = match &config.https {
            Some(https) => Some(TcpListener::bind(https.listen).await.unwrap()),
            None => None,
        };
        let https_address = https.as_ref().map(|https| https.local_addr().unwrap());
        let ingress = Ingress { snapshot: following, gates: own, tunnel, doubts: None, config };
        tokio::spawn(ingress.serve(
            ready(Arc::new(listener)),
            ready(https.map(Arc::new)),
            shutdown.clone().into(),
        ));
        Self { gates, address, https_address, peers, snapshot, shutdown, another_host: None }
    }

    pub(super) fn set_rules(&self, rules: Vec<IngressRule>) {
        let rules = rules.into_iter().map(|rule| (web(), rule)).collect();
        let endpoints = self.snapshot.borrow().endpoints.clone();
        let routes = Arc::new(RouteTable::new(rules));
        self.snapshot.send_replace(Arc::new(RoutingSnapshot { routes, endpoints }));
    }

    pub(super) fn set_endpoints(&self, endpoints: Vec<Endpoint>) {
        let routes = self.snapshot.borrow().routes.clone();
        let endpoints = HashMap::from([(web(), endpoints.into_iter().map(Arc::new).collect())]);
        self.snapshot.send_replace(Arc::new(RoutingSnapshot { routes, endpoints }));
    }

    pub(super) fn set_only_pod(&self, name: &str) {
        self.gates.set(row(name));
        self.set_endpoints(vec![endpoint(name, EndpointState::Ready)]);
    }

    pub(super) async fn request(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        Client::connect(self.address).await.send(request).await.unwrap()
    }

    /// Closes the sending side after all answers.
    pub(super) async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let (mut answer, expected) = (Vec::new(), answers_to(bytes));
        let answers = |answer: &[u8]| String::from_utf8_lossy(answer).matches("HTTP/1.").count();
        while expected.is_none_or(|expected| answers(&answer) < expected) {
            let reading = stream.read_buf(&mut answer);
            let read = tokio::time::timeout(Duration::from_secs(10), reading).await.expect("it is answered");
            // A reset after the answer is an end as well.
            if !matches!(read, Ok(1..)) {
                return String::from_utf8_lossy(&answer).into_owned();
            }
        }
        stream.shutdown().await.unwrap();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }
}

fn answers_to(bytes: &[u8]) -> Option<usize> {
    let mut scanner = Scanner::default();
    let heads = scanner.feed(bytes).ok()?;
    let has_ended = matches!(scanner.state(), FramingState::Between | FramingState::Upgrade);
    Some(if has_ended { heads } else { heads.saturating_sub(1) })
}

pub(super) fn row(name: &str) -> LocalPod {
    LocalPod { start: 1, service: Some(web()), ..local_pod(name) }
}

pub(super) struct FakePod {
    pub(super) port: u16,
    accepting: AbortHandle,
    connections: Connections,
}

type Connections = Arc<Mutex<JoinSet<()>>>;

impl FakePod {
    pub(super) async fn http1(name: &str, port: u16, after: Duration) -> Self {
        let name = name.to_owned();
        Self::with(port, move |stream| {
            let name = name.clone();
            async move {
                let service = service_fn(move |request| echo(name.clone(), after, request));
                let mut server = hyper::server::conn::http1::Builder::new();
                server.max_headers(2000);
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            }
        })
        .await
    }

    /// Pings between requests. Also returns the counts of its connections and of ended ones.
    pub(super) async fn http2(name: &str) -> (Self, Arc<[AtomicUsize; 2]>) {
        let (name, counts) = (name.to_owned(), Arc::<[AtomicUsize; 2]>::default());
        let counted = counts.clone();
        let pod = Self::with(0, move |stream| {
            let (name, counts) = (name.clone(), counted.clone());
            counts[0].fetch_add(1, Ordering::SeqCst);
            async move {
                let service =
                    service_fn(move |request| echo(name.clone(), Duration::from_millis(10), request));
                let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                server.timer(TokioTimer::new()).keep_alive_interval(Duration::from_millis(20));
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
                counts[1].fetch_add(1, Ordering::SeqCst);
            }
        })
        .await;
        (pod, counts)
    }

    pub(super) async fn with<F: Future<Output = ()> + Send + 'static>(
        port: u16,
        serve: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Connections::default();
        let accepted = connections.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                accepted.lock().spawn(serve(stream));
            }
        });
        Self { port, accepting: accepting.abort_handle(), connections }
    }

    pub(super) fn open_connections(&self) -> usize {
        let mut connections = self.connections.lock();
        while connections.try_join_next().is_some() {}
        connections.len()
    }

    pub(super) async fn kill(self) {
        self.connections.lock().abort_all();
        self.leave().await;
    }

    /// The pod's connections stay open.
    pub(super) async fn leave(self) {
        self.accepting.abort();
        while TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).await.is_err() {
            tokio::task::yield_now().await;
        }
        std::mem::forget(self.connections);
    }
}

async fn echo(
    name: String,
    after: Duration,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let seen = format!("{} {} {:?}", request.method(), request.uri(), request.headers());
    let status = match request.uri().path().strip_prefix("/status/") {
        Some(status) => status.parse().unwrap(),
        None => StatusCode::OK,
    };
    let body = match request.into_body().collect().await {
        Ok(body) => body.to_bytes().len(),
        Err(_) => 0,
    };
    tokio::time::sleep(after).await;
    let mut response = Response::new(Full::from(format!("{name} {body} {seen}")));
    *response.status_mut() = status;
    Ok(response)
}

pub(super) enum Client {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Client {
    pub(super) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        Self::Http1(sender)
    }

    pub(super) async fn connect_http2(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        Self::Http2(sender)
    }

    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Http2(sender) => sender.send_request(request).await,
        }
    }
}

pub(super) fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(path).header("host", "web.example").body(Full::default()).unwrap()
}

pub(super) async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8_lossy(&body).into_owned()
}

pub(super) async fn eventually(mut condition: impl AsyncFnMut() -> bool) {
    for _ in 0..2000 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the condition was not met within 10 s");
}
