//! The proxy of a host, between clients or pods and the pods of its host. This crate assembles its parts.
//!
//! - [`gate`] counts requests to each pod, and closes before its stop.
//! - [`tunnel`] connects to and from the pods of other hosts.
//! - [`routing`] follows routes and endpoints in Redis.
//! - [`ingress`] accepts requests and connections from outside.
//! - [`names`] lets pods reach services by name.
//! - [`acme`] orders certificates.
//!
//! Of this workspace it may import `daemon`, `store` and these six. Its benches time all of them.
//!
//! Tests: scenarios::handover, scenarios::take_over, scenarios::names, scenarios::tunnel

use std::sync::Arc;
use std::time::Duration;

use acme::Acme;
use daemon::config::{Config, TunnelListen};
use futures_util::future::OptionFuture;
use gate::Gates;
use gate::listening::Listening;
use gate::name_reach::{KnownNameReach, NameReach};
use ingress::{HttpsConfig, Ingress, IngressConfig};
use names::{Forwarder, HostNames, RESOLV_CONF, Resolver};
use routing::follow::{Follower, Hosts};
use store::{LinkOptions, Store};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tunnel::{HostTunnel, Peers, ProxyKey, TunnelDialer};

pub use acme;
pub use gate;
pub use gate::PodsOfNodes;
pub use gate::listening;
pub use gate::local::{LocalError, LocalHost, LocalServer, SocketEnd, ping};
pub use ingress;
pub use names;
pub use routing;
pub use routing::{endpoint_set, follow, route, snapshot};
pub use tunnel;

#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("a proxy needs a socket to the workers of its host: KUBELEET_PROXY_SOCKET is off")]
    NoSocket,
    #[error(transparent)]
    Local(#[from] LocalError),
}

/// Routes and pod networks are known a moment after the start.
const INHERITED_KEPT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    Alone,
    TakeOver,
}

/// Calls `ready` once workers can connect.
pub async fn run(
    config: Arc<Config>,
    start: Start,
    listening: Listening,
    ready: impl FnOnce(),
) -> Result<(), ProxyError> {
    describe_metrics();
    let socket = config.proxy_socket.clone().ok_or(ProxyError::NoSocket)?;
    let gates = Arc::new(Gates::default());
    let status = watch::Sender::new((!config.names).then(NameReach::off));
    let local = match start {
        Start::Alone => LocalServer::bind(socket.clone(), gates.clone()).await?,
        Start::TakeOver => LocalServer::take_over(socket.clone(), gates.clone(), &listening).await?,
    };
    let local = local.telling(status.subscribe()).giving(listening.clone());
    tracing::info!("serving the workers of this host at {}", socket.display());
    ready();
    // The socket stays until the last request has ended: without it, workers stop their pods at once.
    let (has_ended, must_end) = (CancellationToken::new(), CancellationToken::new());
    let traffic = traffic(&config, &listening, gates, &local, status, has_ended.clone());
    let serve = async {
        must_end.run_until_cancelled(traffic).await;
        has_ended.cancel();
    };
    let local = async {
        if local.run(has_ended.clone()).await == SocketEnd::UntilNextEnded {
            tracing::warn!("the next proxy process has ended: requests in flight here are cut");
            must_end.cancel();
        }
    };
    let inherited = listening.stopped().run_until_cancelled_owned(async {
        tokio::time::sleep(INHERITED_KEPT).await;
        listening.drop_inherited();
    });
    tokio::join!(local, serve, inherited);
    Ok(())
}

fn traffic(
    config: &Arc<Config>,
    listening: &Listening,
    gates: Arc<Gates>,
    local: &LocalServer,
    status: watch::Sender<KnownNameReach>,
    has_ended: CancellationToken,
) -> impl Future<Output = ()> + use<> {
    let socket = local.path().to_owned();
    let store = Store::new(config.redis.clone(), LinkOptions::default());
    let tunnel = host_tunnel(config, listening, &store, local);
    let dialer =
        tunnel.as_ref().map(|tunnel| Arc::new(TunnelDialer::new(tunnel.key.clone(), tunnel.peers.clone())));
    let (follower, snapshot) = Follower::new(store.clone(), Some(socket.with_extension("endpoints.json")));
    let follower = follower.asking(Hosts { others: dialer.clone(), own: local.workers() });
    let doubts = Some(follower.doubts());
    let ways = |config| Ingress {
        snapshot: snapshot.clone(),
        gates: gates.clone(),
        tunnel: dialer.clone(),
        doubts: doubts.clone(),
        config,
    };
    let (mut ingress, acme) = (ingress_config(config), Acme::new(config, &store, &socket, &snapshot));
    if let Some(ingress) = &mut ingress {
        acme.serve_by(ingress);
    }
    let ingress = ingress.map(ways);
    let names = config.names.then(|| {
        let forwarder = Forwarder::new(RESOLV_CONF.into());
        let interest = follower.interest();
        let resolver = Resolver::new(store, interest, snapshot.clone(), gates.clone(), forwarder);
        // A separate view of pod health: its connections last, unlike those of ingress.
        let (shared, following) =
            ways(IngressConfig { wait: config.pod_wait, ..IngressConfig::default() }).share();
        let (resolver, gateways) = (Arc::new(resolver), local.gateways());
        let (file, listening) = (socket.with_extension("names.json"), listening.clone());
        let connections = TaskTracker::new();
        let (redis, peers) = (config.redis.clone(), tunnel.as_ref().map(|tunnel| tunnel.peers.clone()));
        let closed_ranges = config.closed_to_pods.clone();
        let names = HostNames {
            resolver,
            shared,
            gateways,
            status,
            redis,
            peers,
            closed_ranges,
            file,
            listening,
            connections,
        };
        (names, following)
    });
    let (listening, former) = (listening.clone(), local.former());
    async move {
        let ingress = OptionFuture::from(ingress.map(|ingress| ingress.run(listening.clone())));
        let tunnel = OptionFuture::from(tunnel.map(HostTunnel::run));
        let names = OptionFuture::from(names.map(|(names, following)| async {
            tokio::select! {
                () = names.run() => {}
                () = following => {}
            }
        }));
        // The former process cuts its connections when this one ends.
        let former = OptionFuture::from(former.map(|former| former.wait_for_end(&listening)));
        let all = async {
            tokio::join!(ingress, acme.run(listening.stopped()), tunnel, names, former);
            has_ended.cancel();
        };
        tokio::join!(follower.run(has_ended.clone()), all);
    }
}

fn host_tunnel(
    config: &Arc<Config>,
    listening: &Listening,
    store: &Store,
    local: &LocalServer,
) -> Option<HostTunnel> {
    if config.tunnel_listen == TunnelListen::Off {
        return None;
    }
    let file = local.path().with_extension("key");
    let key = match ProxyKey::load_or_create(&file) {
        Ok(key) => Arc::new(key),
        Err(error) => {
            let file = file.display();
            tracing::warn!(
                "the key of this proxy, {file}, cannot be read or written: {error}; no other host is reached"
            );
            return None;
        }
    };
    let (config, store, workers) = (config.clone(), store.clone(), local.workers());
    let (listening, nodes) = (listening.clone(), local.nodes());
    let peers_file = local.path().with_extension("peers.json");
    let peers = Arc::new(Peers::saved(&peers_file));
    Some(HostTunnel { config, store, key, peers, peers_file, workers, nodes, listening })
}

fn ingress_config(config: &Config) -> Option<IngressConfig> {
    let listen = config.ingress_listen?;
    let trusted = config.trusted_proxies.clone();
    let https = config
        .ingress_tls_listen
        .map(|listen| HttpsConfig { certificates: config.certificates.clone(), ..HttpsConfig::new(listen) });
    let (tcp_address, wait) = (listen.ip(), config.pod_wait);
    // Each client connection has another one to a pod, and the rest of the proxy needs files too.
    let connections = usize::try_from(daemon::file_limit::raise() / 3).unwrap_or(usize::MAX);
    let connections_per_client = usize::try_from(config.client_connections).unwrap_or(usize::MAX);
    let limits = IngressConfig { connections, connections_per_client, ..IngressConfig::default() };
    Some(IngressConfig { listen, https, tcp_address, wait, trusted, ..limits })
}

pub fn describe_metrics() {
    gate::describe_metrics();
    ingress::describe_metrics();
}
