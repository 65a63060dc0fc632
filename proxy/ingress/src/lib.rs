//! Ingress: takes requests and connections from outside and passes each to a ready pod of the service that
//! its route names, through the gate of that pod.
//!
//! - [`framing`], [`headers`], [`pick`] and [`retry`] decide what happens to a request, and do nothing.
//! - [`certificates`] has the certificates of HTTPS, from files and from Redis, and `challenges` the answers
//!   to authorities that check a host.
//!
//! Of this workspace it may import `common`, `gate`, `tunnel` and `routing`. Its own tests hold it, with pods
//! on this host and on another, and the bench `ingress`.

mod answer;
mod asking;
mod callers;
pub mod certificates;
mod challenges;
mod client_body;
mod client_stream;
mod clients;
mod connection;
mod deadlines;
mod exchange;
mod frames;
pub mod framing;
mod from_pod;
mod guarded;
pub mod headers;
mod https;
mod measure;
pub mod pick;
mod pods;
pub mod retry;
mod search;
mod serve;
mod tcp;
#[cfg(test)]
mod tests;
mod threads;
mod upgrade;
mod way;
mod websocket;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use common::address_range::AddressRange;
use common::ids::{PodId, ServiceName};
use futures_util::FutureExt;
use futures_util::future::OptionFuture;
use gate::Gates;
use gate::listening::{self, Listening};
use gate::rarely::RarelyEach;
use gate::shares::TakenPlace;
use routing::follow::Doubts;
use routing::snapshot::RoutingSnapshot;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use tunnel::TunnelDialer;

use crate::retry::NoAnswer;

pub use challenges::{CACHED_FOR, Challenges};
use clients::Clients;
use https::Https;
pub use https::HttpsConfig;
pub use measure::{certificate_expires, describe as describe_metrics};
use pods::RoutingTable;
use search::NoPod;
pub use search::RequestTarget;
use serve::ClientScheme;
pub use tcp::pass_on;
use threads::{Accepted, ThreadContext, Threads};

/// The wait after a failed `accept`, which mostly means that all file descriptors are in use.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Where ingress listens, and its limits.
#[derive(Debug, Clone)]
pub struct IngressConfig {
    /// Address for HTTP.
    pub listen: SocketAddr,
    /// Where HTTPS is taken; `None` for HTTP only.
    pub https: Option<HttpsConfig>,
    /// Answers authorities that check hosts whose certificates are ordered; `None` if none are.
    pub challenges: Option<Arc<Challenges>>,
    /// Address on which the ports of TCP rules are opened.
    pub tcp_address: IpAddr,
    /// How long a request or connection waits for a ready pod.
    pub wait: Duration,
    /// The longest time to connect to a pod.
    pub connect_within: Duration,
    /// The longest time for the head of a request to arrive, and for a TLS handshake.
    pub head_within: Duration,
    /// The longest time without a byte from the client when one is due.
    pub idle: Duration,
    /// The most connections, by HTTP, HTTPS and TCP rules together.
    pub connections: usize,
    /// The most of them from one address.
    pub connections_per_client: usize,
    /// Proxies before this one whose forwarding headers are kept.
    pub trusted: Vec<AddressRange>,
    /// Threads that serve HTTP.
    pub threads: usize,
}

impl Default for IngressConfig {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 8080).into(),
            https: None,
            challenges: None,
            tcp_address: Ipv4Addr::LOCALHOST.into(),
            wait: Duration::from_secs(10),
            connect_within: tunnel::CONNECT_WITHIN,
            head_within: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            connections: usize::MAX,
            connections_per_client: 1000,
            trusted: Vec::new(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

impl IngressConfig {
    /// Returns whether requests are taken by HTTP or HTTPS on this port.
    fn is_own_port(&self, port: u16) -> bool {
        let https = self.https.as_ref().map(|https| https.listen.port());
        port == self.listen.port() || Some(port) == https
    }

    /// Returns the most connections from an address: a proxy before this one has those of all its clients.
    fn most_connections(&self, address: IpAddr) -> usize {
        if self.is_trusted(address) { usize::MAX } else { self.connections_per_client }
    }

    /// Returns whether an address is that of a trusted proxy before this one.
    fn is_trusted(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|range| range.contains(address))
    }
}

/// The ingress of a host.
#[derive(Debug)]
pub struct Ingress {
    /// Routes and endpoints.
    pub snapshot: watch::Receiver<Arc<RoutingSnapshot>>,
    /// The gates of this host's pods.
    pub gates: Arc<Gates>,
    /// Reaches pods of other hosts; `None` if only this host's are reached.
    pub tunnel: Option<Arc<TunnelDialer>>,
    /// Is told when what is known of a service has led to no pod; `None` if there is nothing to ask.
    pub doubts: Option<Doubts>,
    /// Where it listens, and its limits.
    pub config: IngressConfig,
}

/// What all connections share.
pub struct IngressShared {
    config: IngressConfig,
    /// The connections of clients that have not ended.
    clients: Clients,
    https: Option<Https>,
    gates: Arc<Gates>,
    tunnel: Option<Arc<TunnelDialer>>,
    doubts: Option<Doubts>,
    warnings: Warnings,
    table: watch::Receiver<Arc<RoutingTable>>,
    #[cfg(test)]
    ablation: Option<tests::Ablation>,
}

/// What is logged of single requests and connections: a client may send thousands in a second.
#[derive(Default)]
struct Warnings {
    failed: RarelyEach<(PodId, NoAnswer)>,
    unserved: RarelyEach<(ServiceName, u16, NoPod)>,
    unwanted: RarelyEach<(ServiceName, IpAddr)>,
}

impl Ingress {
    /// Listens on the configured addresses and serves for as long as this process listens; then what is in
    /// flight may end. While an address is in use it is tried again every 5 s: the pods of this host can be
    /// stopped safely meanwhile.
    pub async fn run(self, listening: impl Into<Listening>) {
        let listening = listening.into();
        let http = listen(listening.clone(), self.config.listen, ClientScheme::Http);
        let https = self.config.https.as_ref().map(|https| https.listen);
        let https = https.map(|address| listen(listening.clone(), address, ClientScheme::Https));
        self.serve(http, OptionFuture::from(https), listening.clone()).await;
    }

    /// As [`run`](Self::run), with the listeners of HTTP and HTTPS as they become available.
    async fn serve(
        self,
        http: impl Future<Output = Arc<TcpListener>>,
        https: impl Future<Output = Option<Arc<TcpListener>>>,
        listening: Listening,
    ) {
        let (shared, following) = self.share();
        serve(shared, http, https, following, listening).await;
    }

    /// Returns the ways to pods, and the future that keeps them up to date.
    pub fn share(self) -> (Arc<IngressShared>, impl Future<Output = ()>) {
        let (sender, table) = watch::channel(Arc::new(RoutingTable::default()));
        let shared = Arc::new(IngressShared {
            https: self.config.https.clone().map(Https::new),
            clients: Clients::new(self.config.connections),
            config: self.config,
            gates: self.gates,
            tunnel: self.tunnel,
            doubts: self.doubts,
            warnings: Warnings::default(),
            table,
            #[cfg(test)]
            ablation: tests::ablation(),
        });
        let following = pods::follow(self.snapshot, sender, shared.clone());
        (shared, following)
    }
}

impl IngressShared {
    /// Counts a connection of a client. `None` if it is to be refused.
    fn enter(&self, address: IpAddr) -> Option<TakenPlace> {
        let place = self.clients.enter(address, self.config.most_connections(address));
        if place.is_none() {
            measure::refused_connection();
        }
        place
    }
}

async fn listen(listening: Listening, address: SocketAddr, scheme: ClientScheme) -> Arc<TcpListener> {
    let setting = match scheme {
        ClientScheme::Http => "KUBELEET_INGRESS_LISTEN",
        ClientScheme::Https => "KUBELEET_INGRESS_TLS_LISTEN",
    };
    let advice = format!("Set {setting} to another address, or end the program that uses this one.");
    let listener = listening::until_it_works(&advice, || async {
        listening.tcp(address).map_err(|error| {
            io::Error::new(error.kind(), format!("Ingress cannot listen on {address}: {error}"))
        })
    })
    .await;
    // A free port is told here only.
    let address = listener.local_addr().unwrap_or(address);
    tracing::info!("ingress listens on {}://{address}", scheme.as_str());
    listener
}

async fn serve(
    shared: Arc<IngressShared>,
    http: impl Future<Output = Arc<TcpListener>>,
    https: impl Future<Output = Option<Arc<TcpListener>>>,
    following: impl Future<Output = ()>,
    listening: Listening,
) {
    if let Some(https) = &shared.https {
        // Before a client can ask for one, also one that is to be redirected.
        https.certificates.look().await;
    }
    let connections = TaskTracker::new();
    let tcp = tcp::run(shared.clone(), connections.clone(), listening.clone());
    let served = ThreadContext { shared, connections: connections.clone(), listening: listening.clone() };
    let threads = match Threads::start(&served) {
        Ok(threads) => threads,
        Err(error) => {
            tracing::error!(
                "Ingress cannot start its threads: {error}. Raise the limits of the proxy's process."
            );
            return;
        }
    };
    let entrance = Entrance { shared: &served.shared, threads, connections: &connections };
    let mut following = pin!(following.fuse());
    tokio::select! {
        () = end_old_connections(&served.shared) => {}
        // These end only when nothing keeps the snapshot any more.
        // HTTPS before HTTP, which redirects to its port.
        () = async { tokio::join!(following.as_mut(), tcp, entrance.https(https), entrance.http(http)); } => return,
        () = listening.until_stopped() => {}
    }
    drop(entrance);
    // The pods of connections that go on still come and go.
    let have_ended = tokio::select! {
        have_ended = listening.have_ended(&connections) => have_ended,
        never = async { following.await; std::future::pending().await } => never,
    };
    if !have_ended {
        tracing::warn!(
            connections = connections.len(),
            "Ingress stops: connections that did not end in time are cut"
        );
    }
}

/// Ends connections to pods that no request has used for a while, for ever.
async fn end_old_connections(shared: &IngressShared) {
    loop {
        tokio::time::sleep(connection::IDLE_LOOK).await;
        let table = shared.table.borrow().clone();
        table.end_old_connections();
    }
}

/// Where clients come in by HTTP and HTTPS.
struct Entrance<'a> {
    shared: &'a IngressShared,
    threads: Threads,
    connections: &'a TaskTracker,
}

impl Entrance<'_> {
    async fn http(&self, listener: impl Future<Output = Arc<TcpListener>>) {
        let listener = listener.await;
        self.accept_all(&listener, ClientScheme::Http).await;
    }

    async fn https(&self, listener: impl Future<Output = Option<Arc<TcpListener>>>) {
        let Some(https) = &self.shared.https else { return };
        let accepting = async {
            let Some(listener) = listener.await else { return };
            if let Ok(address) = listener.local_addr() {
                https.listens_on(address);
            }
            self.accept_all(&listener, ClientScheme::Https).await;
        };
        tokio::join!(accepting, https.certificates.follow(https.config.look_every));
    }

    async fn accept_all(&self, listener: &TcpListener, scheme: ClientScheme) {
        loop {
            match listener.accept().await.and_then(|(stream, address)| Ok((stream.into_std()?, address))) {
                Ok((stream, address)) => {
                    let address = address.ip().to_canonical();
                    if let Some(place) = self.shared.enter(address) {
                        let goes_on = self.connections.token();
                        self.threads.serve(Accepted { stream, address, scheme, place, goes_on });
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "Ingress cannot accept a connection; trying again in 50 ms");
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                }
            }
        }
    }
}
