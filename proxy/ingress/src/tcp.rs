//! TCP ingress: opens and closes a port of this host for each rule.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gate::Pass;
use gate::listening::Listening;
use gate::socket;
use model::ids::ServiceName;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tunnel::TunnelStream;

use crate::pod::pod_path::{self, PodPath};
use crate::pod::routing_table::{InFlight, NoPod, Pod};
use crate::pod::search::{ForConnection, RequestTarget, Search};
use crate::shared::IngressShared;

const RETRY_INTERVAL: Duration = Duration::from_secs(5);

pub(super) async fn run(shared: Arc<IngressShared>, connections: TaskTracker, process: Listening) {
    let mut table = shared.table.clone();
    let mut open: HashMap<u16, CancellationToken> = HashMap::new();
    loop {
        let wanted: Vec<u16> = table.borrow_and_update().routes.tcp().keys().copied().collect();
        open.retain(|port, listening| {
            let is_wanted = wanted.contains(port);
            if !is_wanted {
                listening.cancel();
            }
            is_wanted
        });
        let mut has_failed = false;
        for port in wanted {
            if open.contains_key(&port) {
                continue;
            }
            let listening = process.stopped().child_token();
            if shared.config.is_own_port(port) {
                let service = table.borrow().routes.tcp().get(&port).map(|route| route.service.clone());
                tracing::error!(
                    service = service.as_ref().map(ServiceName::as_str),
                    "Its `tcp` rule has port {port}, where this ingress takes requests by HTTP or HTTPS: nothing \
                     is passed to it there. Change the rule, or the port of the ingress."
                );
                open.insert(port, listening);
            } else if listen(&shared, port, &connections, &process, &listening) {
                open.insert(port, listening);
            } else {
                has_failed = true;
            }
        }
        let changed = table.changed();
        if has_failed {
            let _ = tokio::time::timeout(RETRY_INTERVAL, changed).await;
        } else if changed.await.is_err() {
            return;
        }
    }
}

fn listen(
    shared: &Arc<IngressShared>,
    port: u16,
    connections: &TaskTracker,
    process: &Listening,
    listening: &CancellationToken,
) -> bool {
    let address = SocketAddr::from((shared.config.tcp_address, port));
    match process.tcp(address) {
        Ok(listener) => {
            let (shared, tracker, listening) = (shared.clone(), connections.clone(), listening.clone());
            connections.spawn(async move {
                listening.clone().run_until_cancelled(accept_all(shared, listener, port, tracker)).await;
            });
            true
        }
        Err(error) => {
            tracing::warn!(
                "Ingress cannot listen on {address}: {error}; trying again in 5 s. \
                 End the program that uses the port, or change the service's `tcp` rule."
            );
            false
        }
    }
}

async fn accept_all(
    shared: Arc<IngressShared>,
    listener: Arc<TcpListener>,
    port: u16,
    connections: TaskTracker,
) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let address = address.ip().to_canonical();
                let Some(place) = shared.enter(address) else { continue };
                let shared = shared.clone();
                connections.spawn(async move {
                    connection(shared, port, stream, address).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "Port {port} cannot accept a connection; trying again in 5 s");
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
}

async fn connection(shared: Arc<IngressShared>, port: u16, client: TcpStream, address: IpAddr) {
    let table = shared.table.borrow().clone();
    let Some(route) = table.routes.tcp().get(&port) else { return };
    let target = RequestTarget { service: &route.service, slot: None, port: route.port };
    let count = || {
        if let Some(service) = table.service(&route.service) {
            service.metrics.connections.increment(1);
        }
        tracing::debug!(target: "access", client = %address, port, service = %route.service, "Connection");
    };
    let _ = pass_on(&shared, client, target, count).await;
}

/// # Errors
/// The client's connection, if no pod accepted.
pub async fn pass_on(
    shared: &IngressShared,
    mut client: TcpStream,
    target: RequestTarget<'_>,
    taken: impl FnOnce(),
) -> Result<(), TcpStream> {
    let Some(TcpToPod { mut stream, pass, in_flight }) = connect(shared, target).await else {
        return Err(client);
    };
    taken();
    let mut cut = pass.as_ref().map(Pass::cut);
    let _ = client.set_nodelay(true);
    // The end of one direction is forwarded, while the other one goes on.
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut stream) => {}
        () = pod_path::until_cut(cut.as_mut()) => {}
    }
    // The connection ends before the gate learns of it.
    drop(stream);
    drop((in_flight, pass));
    Ok(())
}

struct TcpToPod {
    stream: Either<TcpStream, Box<TunnelStream>>,
    pass: Option<Pass>,
    in_flight: InFlight,
}

async fn connect(shared: &IngressShared, target: RequestTarget<'_>) -> Option<TcpToPod> {
    let RequestTarget { service, port, .. } = target;
    let mut search = Search::new(shared, target, ForConnection);
    loop {
        let (pod, path) = match search.next().await {
            Ok(found) => found,
            Err(why) => {
                if let (NoPod::NotListening, Some(service)) = (why, search.service()) {
                    service.metrics.not_listening.increment(1);
                }
                if let Some(left_out) = shared.warnings.unserved.admit_counting((service.clone(), port, why))
                {
                    tracing::warn!(%service, port, ?why, "Connection refused: no pod took it{left_out}");
                }
                return None;
            }
        };
        let in_flight = pod.begin();
        let pass = match path {
            PodPath::Here(pass) => pass,
            PodPath::There(stream) => {
                return Some(TcpToPod { stream: Either::Right(stream), pass: None, in_flight });
            }
        };
        match connect_to(shared, &pod, &pass, port).await {
            Ok(stream) => {
                return Some(TcpToPod { stream: Either::Left(stream), pass: Some(pass), in_flight });
            }
            Err(error) => {
                tracing::debug!(%service, pod = %pod.endpoint.pod, port, %error, "Connection failed");
                pod.failed(service, Instant::now());
                search.rule_out(&pod, true);
            }
        }
    }
}

async fn connect_to(shared: &IngressShared, pod: &Pod, pass: &Pass, port: u16) -> std::io::Result<TcpStream> {
    let begun = Instant::now();
    let connecting = socket::connect((pass.address(), port).into());
    let stream = tokio::time::timeout(shared.config.connect_within, connecting).await??;
    stream.set_nodelay(true)?;
    pod.answered(port, begun.elapsed(), Instant::now());
    Ok(stream)
}
