//! Ingress: takes requests and connections from outside and passes each to a ready pod of the service that
//! its route names, through the gate of that pod.

mod answer;
mod connection;
mod exchange;
mod from_pod;
mod guarded;
mod measure;
mod pods;
mod search;
mod serve;
mod tcp;
#[cfg(test)]
mod tests;
mod threads;
mod upgrade;
mod way;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::address_range::AddressRange;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::gate::Gates;
use crate::listening::{self, STOP_WITHIN};
use crate::snapshot::Snapshot;
use crate::tunnel::Dialer;

use pods::Table;
pub(crate) use search::Target;
pub(crate) use tcp::pass_on;
use threads::{Accepted, Served, Threads};

/// The wait after a failed `accept`, which mostly means that all file descriptors are in use.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Where ingress listens, and its limits.
#[derive(Debug, Clone)]
pub struct IngressConfig {
    /// Address for HTTP.
    pub listen: SocketAddr,
    /// Address on which the ports of TCP rules are opened.
    pub tcp_address: IpAddr,
    /// How long a request or connection waits for a ready pod.
    pub wait: Duration,
    /// The longest time to connect to a pod.
    pub connect_within: Duration,
    /// The longest time from the end of a request to the beginning of its answer.
    pub answer_within: Duration,
    /// The longest time for the head of a request to arrive.
    pub head_within: Duration,
    /// The longest time without a byte from the client when one is due.
    pub idle: Duration,
    /// The most connections from one address.
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
            tcp_address: Ipv4Addr::LOCALHOST.into(),
            wait: Duration::from_secs(10),
            connect_within: Duration::from_secs(2),
            answer_within: Duration::from_secs(60),
            head_within: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            connections_per_client: 1000,
            trusted: Vec::new(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// The ingress of a host.
#[derive(Debug)]
pub struct Ingress {
    /// Routes and endpoints.
    pub snapshot: watch::Receiver<Arc<Snapshot>>,
    /// The gates of this host's pods.
    pub gates: Arc<Gates>,
    /// Reaches pods of other hosts; `None` if only this host's are reached.
    pub tunnel: Option<Arc<Dialer>>,
    /// Where it listens, and its limits.
    pub config: IngressConfig,
}

/// What all connections share.
pub(crate) struct Shared {
    config: IngressConfig,
    gates: Arc<Gates>,
    tunnel: Option<Arc<Dialer>>,
    table: watch::Receiver<Arc<Table>>,
    #[cfg(test)]
    ablation: Option<tests::Ablation>,
}

impl Ingress {
    /// Listens on the configured address and serves until `shutdown`; then what is in flight has 10 s to end.
    /// While the address is in use it is tried again every 5 s: the pods of this host can be stopped safely
    /// meanwhile.
    pub async fn run(self, shutdown: CancellationToken) {
        if let Some(listener) = shutdown.run_until_cancelled(listen(self.config.listen)).await {
            self.serve(listener, shutdown).await;
        }
    }

    /// As [`run`](Self::run), on a listener that exists.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) {
        let (shared, following) = self.share();
        serve(shared, listener, following, shutdown).await;
    }

    /// Returns the ways to pods, and the future that keeps them up to date.
    pub(crate) fn share(self) -> (Arc<Shared>, impl Future<Output = ()>) {
        let (sender, table) = watch::channel(Arc::new(Table::default()));
        let shared = Arc::new(Shared {
            config: self.config,
            gates: self.gates,
            tunnel: self.tunnel,
            table,
            #[cfg(test)]
            ablation: tests::ablation(),
        });
        let following = pods::follow(self.snapshot, sender, shared.clone());
        (shared, following)
    }
}

async fn listen(address: SocketAddr) -> TcpListener {
    let advice = "Set KUBELEET_INGRESS_LISTEN to another address, or end the program that uses this one.";
    let listener = listening::until_it_works(advice, || async move {
        common::listen::listen(address).map_err(|error| {
            io::Error::new(error.kind(), format!("Ingress cannot listen on {address}: {error}"))
        })
    })
    .await;
    // A free port is told here only.
    let address = listener.local_addr().unwrap_or(address);
    tracing::info!("ingress listens on http://{address}");
    listener
}

async fn serve(
    shared: Arc<Shared>,
    listener: TcpListener,
    following: impl Future<Output = ()>,
    shutdown: CancellationToken,
) {
    let connections = TaskTracker::new();
    let tcp = tcp::run(shared.clone(), connections.clone(), shutdown.clone());
    let served = Served { shared, connections: connections.clone(), shutdown: shutdown.clone() };
    let threads = match Threads::start(&served) {
        Ok(threads) => threads,
        Err(error) => {
            tracing::error!(
                "Ingress cannot start its threads: {error}. Raise the limits of the proxy's process."
            );
            return;
        }
    };
    let http = accept_all(&served.shared, &listener, threads);
    tokio::select! {
        // These end only when nothing keeps the snapshot any more.
        () = async { tokio::join!(following, tcp, http); } => {}
        () = shutdown.cancelled() => {}
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(STOP_WITHIN, connections.wait()).await.is_err() {
        tracing::warn!(
            connections = connections.len(),
            "Ingress stops: connections that did not end within 10 s are cut"
        );
    }
}

async fn accept_all(shared: &Shared, listener: &TcpListener, mut threads: Threads) {
    let clients = Arc::new(Clients::default());
    loop {
        match listener.accept().await.and_then(|(stream, address)| Ok((stream.into_std()?, address))) {
            Ok((stream, address)) => {
                let address = address.ip().to_canonical();
                match clients.enter(address, shared.config.connections_per_client) {
                    Some(place) => threads.serve(Accepted { stream, address, place }),
                    None => measure::refused_connection(),
                }
            }
            Err(error) => {
                tracing::warn!(%error, "Ingress cannot accept a connection; trying again in 50 ms");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}

/// Describes the metrics of ingress: units and help texts for the installed recorder.
pub(crate) fn describe_metrics() {
    measure::describe();
}

/// Counts the connections of each client address.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    connections: Mutex<HashMap<IpAddr, usize>>,
}

/// One counted connection of a client.
pub(crate) struct Place {
    clients: Arc<Clients>,
    address: IpAddr,
}

impl Clients {
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr, most: usize) -> Option<Place> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let count = connections.entry(address).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Place { clients: self.clone(), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut connections = self.clients.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = connections.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                connections.remove(&self.address);
            }
        }
    }
}
