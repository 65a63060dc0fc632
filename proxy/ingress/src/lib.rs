//! Ingress: forwards requests and connections from outside to a ready pod, through its gate.
//!
//! `client` handles the connections of clients, and `pod` those to pods.
//!
//! Of this workspace it may import `daemon`, `model`, `store`, `gate`, `tunnel` and `routing`. Its benches
//! are those of the crate `proxy`.
//!
//! Tests: ingress, scenarios::ingress_limits, scenarios::https

mod answer;
mod callers;
pub mod certificates;
mod challenges;
mod client;
mod config;
mod headers;
mod https;
mod long_heads;
mod measure;
mod pod;
mod scanner;
mod serve;
mod shared;
mod tcp;
#[cfg(test)]
mod tests;
mod threads;
mod upgrade;
mod websocket;

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::OptionFuture;
use gate::Gates;
use gate::listening::{self, Listening};
use routing::follow::Doubts;
use routing::snapshot::RoutingSnapshot;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use tunnel::TunnelDialer;

pub use challenges::{CACHED_FOR, Challenges};
use client::places::Clients;
pub use config::IngressConfig;
use https::Https;
pub use https::HttpsConfig;
pub use measure::{certificate_expires, describe as describe_metrics};
use pod::connection;
use pod::following;
use pod::routing_table::RoutingTable;
pub use pod::search::RequestTarget;
use serve::ClientScheme;
pub use shared::IngressShared;
use shared::Warnings;
pub use tcp::pass_on;
use threads::{Accepted, ThreadContext, Threads};

/// Mostly for lack of file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

pub struct Ingress {
    pub snapshot: watch::Receiver<Arc<RoutingSnapshot>>,
    pub gates: Arc<Gates>,
    /// Without it, only this host's pods are reached.
    pub tunnel: Option<Arc<TunnelDialer>>,
    pub doubts: Option<Doubts>,
    pub config: IngressConfig,
}

impl Ingress {
    /// Retries an address in use: meanwhile the pods of this host can be stopped safely.
    pub async fn run(self, listening: impl Into<Listening>) {
        let listening = listening.into();
        let http = listen(listening.clone(), self.config.listen, ClientScheme::Http);
        let https = self.config.https.as_ref().map(|https| https.listen);
        let https = https.map(|address| listen(listening.clone(), address, ClientScheme::Https));
        self.serve(http, OptionFuture::from(https), listening.clone()).await;
    }

    async fn serve(
        self,
        http: impl Future<Output = Arc<TcpListener>>,
        https: impl Future<Output = Option<Arc<TcpListener>>>,
        listening: Listening,
    ) {
        let (shared, following) = self.share();
        serve_until_stopped(shared, http, https, following, listening).await;
    }

    /// The future keeps the shared state up to date.
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
        let following = following::follow(self.snapshot, sender, shared.clone());
        (shared, following)
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
    let address = listener.local_addr().unwrap_or(address);
    tracing::info!("ingress listens on {}://{address}", scheme.as_str());
    listener
}

async fn serve_until_stopped(
    shared: Arc<IngressShared>,
    http: impl Future<Output = Arc<TcpListener>>,
    https: impl Future<Output = Option<Arc<TcpListener>>>,
    following: impl Future<Output = ()>,
    listening: Listening,
) {
    if let Some(https) = &shared.https {
        // Before the first handshake or redirect needs a certificate.
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
        // These end only with the snapshot's sender. HTTPS comes before HTTP, which redirects to its port.
        () = async { tokio::join!(following.as_mut(), tcp, entrance.https(https), entrance.http(http)); } => return,
        () = listening.until_stopped() => {}
    }
    drop(entrance);
    // Pods still change while connections finish.
    let have_ended = tokio::select! {
        have_ended = listening.wait_for_connections(&connections) => have_ended,
        never = async { following.await; std::future::pending().await } => never,
    };
    if !have_ended {
        tracing::warn!(
            connections = connections.len(),
            "Ingress stops: connections that did not end in time are cut"
        );
    }
}

async fn end_old_connections(shared: &IngressShared) {
    loop {
        tokio::time::sleep(connection::IDLE_LOOK).await;
        let table = shared.table.borrow().clone();
        table.end_old_connections();
    }
}

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
