//! The listening end of the tunnel: connects other proxies to this host's pods.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use daemon::log_limit::LogLimit;
use gate::listening::Listening;
use gate::socket::{self, Socket};
use gate::workers::Workers;
use gate::{Gates, Pass};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;

use super::key::{Fingerprint, ProxyKey};
use super::peers::Peers;
use super::protocol::{AHEAD_PROTOCOL, KEPT_PROTOCOL, SERVING_PROTOCOL, TunnelReply, reply_of};
use super::serve_kept;
use super::serving;
use super::target::{TunnelTarget, read_target};
use super::tls::server_config;

/// For a handshake, and for the line that names the pod.
const OPEN_WITHIN: Duration = Duration::from_secs(5);
/// A connection opened ahead waits this long for that line.
const WAITS_FOR: Duration = Duration::from_secs(60);
/// The other proxy takes a host that is silent for 2 s for dead: it must learn that only the pod is.
const CONNECT_WITHIN: Duration = Duration::from_millis(1500);
/// Further connections are refused like by a gate: the host is not dead.
const MAX_CONNECTIONS: usize = 16_384;
/// Anyone can begin one.
const MAX_HANDSHAKES: usize = 1024;
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

pub struct TunnelListener {
    listener: Arc<TcpListener>,
    acceptor: TlsAcceptor,
    shared: Arc<ListenerShared>,
}

struct ListenerShared {
    peers: Arc<Peers>,
    workers: Arc<Workers>,
    /// For unauthenticated connections.
    handshakes: Arc<Semaphore>,
    places: Semaphore,
    warned: LogLimit,
}

impl ListenerShared {
    fn new(peers: Arc<Peers>, workers: Arc<Workers>, connections: usize) -> Self {
        let handshakes = Arc::new(Semaphore::new(MAX_HANDSHAKES));
        Self { peers, workers, handshakes, places: Semaphore::new(connections), warned: LogLimit::default() }
    }
}

impl TunnelListener {
    pub fn on(
        listener: Arc<TcpListener>,
        key: &ProxyKey,
        peers: Arc<Peers>,
        workers: Arc<Workers>,
    ) -> io::Result<Self> {
        let config = server_config(key, peers.clone()).map_err(io::Error::other)?;
        let shared = Arc::new(ListenerShared::new(peers, workers, MAX_CONNECTIONS));
        Ok(Self { listener, acceptor: Arc::new(config).into(), shared })
    }

    #[cfg(test)]
    pub(super) fn with_connections(mut self, most: usize) -> Self {
        let ListenerShared { peers, workers, .. } = &*self.shared;
        self.shared = Arc::new(ListenerShared::new(peers.clone(), workers.clone(), most));
        self
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub async fn run(self, listening: impl Into<Listening>) {
        let (listening, connections) = (listening.into(), TaskTracker::new());
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = listening.until_stopped() => break,
            };
            match accepted {
                Ok((stream, address)) => {
                    let (acceptor, shared) = (self.acceptor.clone(), self.shared.clone());
                    let listening = listening.clone();
                    let Ok(handshake) = shared.handshakes.clone().try_acquire_owned() else {
                        shared.warn(&format!("{MAX_HANDSHAKES} connections that have not shown their key"));
                        continue;
                    };
                    connections.spawn(async move {
                        if let Err(error) = serve(acceptor, &shared, stream, handshake, &listening).await {
                            tracing::debug!(%error, peer = %address, "Connection of the tunnel ended");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "The tunnel cannot accept a connection; trying again in 100 ms");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
        drop(self.listener);
        listening.wait_for_connections(&connections).await;
    }
}

impl ListenerShared {
    fn place(&self) -> Option<SemaphorePermit<'_>> {
        let place = self.places.try_acquire().ok();
        if place.is_none() {
            self.warn(&format!("{MAX_CONNECTIONS} connections to pods"));
        }
        place
    }

    fn warn(&self, what: &str) {
        if self.warned.admit(()) {
            tracing::warn!("The tunnel has {what}, as many as it takes; further ones are refused");
        }
    }
}

async fn serve(
    acceptor: TlsAcceptor,
    shared: &ListenerShared,
    stream: TcpStream,
    handshake: OwnedSemaphorePermit,
    listening: &Listening,
) -> io::Result<()> {
    let ListenerShared { peers, workers, .. } = shared;
    let stream = Socket::new(stream)?;
    let mut peer = timeout(OPEN_WITHIN, acceptor.accept(stream)).await??;
    drop(handshake);
    let within = match peer.get_ref().1.alpn_protocol() {
        Some(SERVING_PROTOCOL) => {
            let answer = serving::answer(&mut peer, |services| workers.serving(services));
            return timeout(OPEN_WITHIN, answer).await?;
        }
        Some(AHEAD_PROTOCOL) => WAITS_FOR,
        _ => OPEN_WITHIN,
    };
    let target = {
        let mut reading = pin!(read_target(&mut peer));
        tokio::select! {
            biased;
            target = timeout(within, &mut reading) => target??,
            // A waiting connection must not hold up this process's end: the next one goes to the new process.
            () = listening.until_stopped() => timeout(OPEN_WITHIN, &mut reading).await??,
        }
    };
    // The peer may have been removed while the connection waited.
    if !key_of(&peer).is_some_and(|key| peers.knows(key)) {
        return Err(io::Error::other("its key is not on the list any more"));
    }
    let gates = workers.gates();
    let place = shared.place();
    let connected = if place.is_some() { connect(gates, &target).await } else { Err(TunnelReply::Closed) };
    match connected {
        Ok((pod, pass)) if peer.get_ref().1.alpn_protocol() == Some(KEPT_PROTOCOL) => {
            serve_kept::serve(gates, &target, peer, pod, pass).await
        }
        Ok((pod, pass)) => pass_bytes(peer, pod, pass).await,
        Err(reply) => {
            peer.write_all(&[reply.byte()]).await?;
            peer.shutdown().await
        }
    }
}

fn key_of(peer: &TlsStream<Socket>) -> Option<Fingerprint> {
    peer.get_ref().1.peer_certificates()?.first().map(|key| Fingerprint::of(key))
}

async fn connect(gates: &Gates, target: &TunnelTarget) -> Result<(TcpStream, Pass), TunnelReply> {
    let pass = gates.enter(&target.pod, &target.assignment).map_err(reply_of)?;
    let connecting = socket::connect((pass.address(), target.port).into());
    match timeout(CONNECT_WITHIN, connecting).await {
        Ok(Ok(pod)) => Ok((pod, pass)),
        Ok(Err(_)) | Err(_) => Err(TunnelReply::NotListening),
    }
}

async fn pass_bytes(mut peer: TlsStream<Socket>, mut pod: TcpStream, pass: Pass) -> io::Result<()> {
    pod.set_nodelay(true)?;
    peer.write_all(&[TunnelReply::Connected.byte()]).await?;
    peer.flush().await?;
    let copied = tokio::select! {
        copied = tokio::io::copy_bidirectional(&mut peer, &mut pod) => copied.map(|_| ()),
        () = pass.cut() => Ok(()),
    };
    // The connection ends before the gate learns of it.
    drop(pod);
    drop(pass);
    copied
}
