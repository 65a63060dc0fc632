//! Forwards connections of pods to service and slot addresses.
//!
//! The host's rules redirect them here, and the kernel knows the destination.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use daemon::listen::Presence;
use gate::listening::Listening;
use ingress::{IngressShared, RequestTarget, pass_on};
use model::network::address::PoolAddress;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tokio_util::task::TaskTracker;

use super::resolver::Resolver;

pub(crate) const PORT: u16 = 7054;
const MAX_PER_POD: usize = 4_096;
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

pub(super) fn bind(
    address: Ipv4Addr,
    presence: Presence,
    listening: &Listening,
) -> std::io::Result<Arc<TcpListener>> {
    listening.tcp_at((address, PORT).into(), presence)
}

/// Accepted connections continue after a cancellation.
pub(super) async fn accept_all(
    listener: Arc<TcpListener>,
    resolver: Arc<Resolver>,
    shared: Arc<IngressShared>,
    connections: TaskTracker,
) {
    loop {
        let (stream, client) = match listener.accept().await {
            Ok((stream, client)) => (stream, client.ip()),
            Err(error) => {
                tracing::warn!(%error, "a connection to a service cannot be accepted; trying again in 50 ms");
                sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let Ok(place) = resolver.shares.connections.take_fairly(client, MAX_PER_POD) else {
            resolver.shares.note_refused(client, "connections to services");
            reset(stream);
            continue;
        };
        let (resolver, shared) = (resolver.clone(), shared.clone());
        connections.spawn(async move {
            if let Err(stream) = serve(stream, client, &resolver, &shared).await {
                reset(stream);
            }
            drop(place);
        });
    }
}

/// # Errors
/// The connection, if it cannot be forwarded.
async fn serve(
    stream: TcpStream,
    client: IpAddr,
    resolver: &Arc<Resolver>,
    shared: &IngressShared,
) -> Result<(), TcpStream> {
    let original = SockRef::from(&stream).original_dst_v4().ok().and_then(|address| address.as_socket_ipv4());
    // Made to this port itself, and not redirected.
    let Some(original) = original else { return Err(stream) };
    let Some(address) = PoolAddress::from_ip(*original.ip()) else { return Err(stream) };
    let Some(name) = resolver.holder(address, client).await else {
        tracing::debug!(%client, address = %original, "a connection to an address that nothing has");
        return Err(stream);
    };
    if !shared.check_caller(client, &name.service).await {
        return Err(stream);
    }
    resolver.want(&name.service);
    let target = RequestTarget { service: &name.service, slot: name.slot, port: original.port() };
    pass_on(shared, stream, target, || {
        tracing::debug!(target: "access", %client, %name, port = original.port(), "Connection by name");
    })
    .await
}

/// Like a host that does not listen, so that the client does not wait.
pub(super) fn reset(stream: TcpStream) {
    // Otherwise the client sees an end instead of an error.
    let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
    drop(stream);
}
