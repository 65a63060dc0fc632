//! The dialing end of the tunnel: a connection to a port of a pod on another host.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use gate::EnterError;
use gate::socket::{self, Socket};
use model::ids::{NodeName, ServiceName};
use model::network::endpoint::Endpoint;
use rustls::pki_types::{IpAddr, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::kept::KeptStream;
use super::key::ProxyKey;
use super::opened_ahead::OpenedAhead;
use super::peers::{Peer, Peers};
use super::protocol::{AHEAD_PROTOCOL, KEPT_PROTOCOL, PROBE_PROTOCOL, SERVING_PROTOCOL, TunnelReply};
use super::serving;
use super::serving::ServedPod;
use super::silent::SilentHosts;
use super::stream::TunnelStream;
use super::tls::client_config;

pub const CONNECT_WITHIN: Duration = Duration::from_secs(2);

const MAX_ASKED: usize = 32;

const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);
const SILENT_ANSWERS_WITHIN: Duration = Duration::from_secs(3);

const OPEN_AHEAD_WITHIN: Duration = Duration::from_secs(5);

/// The pod has seen nothing.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    #[error("{0}")]
    Refused(#[from] EnterError),
    #[error("the pod accepts no connection on port {0}")]
    NotListening(u16),
    #[error("node {0} has no proxy: start `kubeleet proxy` there")]
    NoProxy(NodeName),
    #[error("the proxy of node {node} at {} cannot be reached: {error}", .peer.address)]
    Unreachable { node: NodeName, peer: Peer, error: io::Error },
}

pub struct TunnelDialer {
    pub(super) key: Arc<ProxyKey>,
    peers: Arc<Peers>,
    silent: SilentHosts,
    pub(super) ahead: Arc<OpenedAhead>,
}

impl TunnelDialer {
    pub fn new(key: Arc<ProxyKey>, peers: Arc<Peers>) -> Self {
        Self { key, peers, silent: SilentHosts::default(), ahead: Arc::default() }
    }

    /// Uses a connection opened ahead, and opens the next one.
    pub async fn connect(
        &self,
        endpoint: &Endpoint,
        port: u16,
        within: Duration,
    ) -> Result<TunnelStream, TunnelError> {
        let connect = async |peer| {
            if let Some(stream) = self.ahead.take(&peer) {
                self.open_ahead(peer);
                match ask_for(stream, endpoint, port).await {
                    Ok(asked) => return Ok(asked),
                    Err(error) => {
                        tracing::debug!(%error, peer = %peer.address, "a waiting connection has ended")
                    }
                }
            }
            let stream = self.open(peer, AHEAD_PROTOCOL).await?;
            self.open_ahead(peer);
            ask_for(stream, endpoint, port).await
        };
        self.connect_by(endpoint, port, within, connect).await
    }

    fn open_ahead(&self, peer: Peer) {
        let (ahead, key) = (self.ahead.clone(), self.key.clone());
        tokio::spawn(async move {
            let opening = async {
                let stream = tokio::time::timeout(OPEN_AHEAD_WITHIN, open(&key, peer, AHEAD_PROTOCOL)).await;
                stream.ok()?.ok()
            };
            ahead.open(peer, opening).await;
        });
    }

    /// For consecutive requests.
    pub async fn connect_for_requests(
        &self,
        endpoint: &Endpoint,
        port: u16,
        within: Duration,
    ) -> Result<KeptStream, TunnelError> {
        let connect = async |peer| ask_for(self.open(peer, KEPT_PROTOCOL).await?, endpoint, port).await;
        Ok(KeptStream::new(self.connect_by(endpoint, port, within, connect).await?))
    }

    pub fn is_silent(&self, node: &NodeName) -> bool {
        self.silent.has_some() && self.peers.of_node(node).is_some_and(|peer| self.silent.contains(&peer))
    }

    /// Probes it until it answers.
    pub fn note_silent(self: &Arc<Self>, node: &NodeName) {
        let Some(peer) = self.peers.of_node(node) else { return };
        if let Some(wait) = self.silent.insert(peer, Instant::now()) {
            tracing::warn!(
                %node, address = %peer.address,
                "The proxy of the node does not answer; until it does, requests go to pods of other hosts where there are \
                 some. Look whether `kubeleet proxy` runs there and its address can be reached from here."
            );
            tokio::spawn(self.clone().ask_until_it_answers(node.clone(), peer, wait));
        }
    }

    async fn ask_until_it_answers(self: Arc<Self>, node: NodeName, peer: Peer, mut wait: Duration) {
        loop {
            tokio::time::sleep(wait).await;
            wait = ASK_AGAIN_AFTER;
            if !self.peers.has(&peer) {
                return self.silent.remove(&peer);
            }
            if self.silent.needs_no_question(&peer) {
                tracing::info!(%node, address = %peer.address, "The proxy of the node answers again");
                return;
            }
            let answer = tokio::time::timeout(SILENT_ANSWERS_WITHIN, self.open(peer, PROBE_PROTOCOL)).await;
            if let Ok(Ok(_)) = answer {
                self.silent.answered(&peer, Instant::now());
            }
        }
    }

    /// Asks about at most `MAX_SERVICES` services. Skips silent hosts.
    pub async fn ask_hosts(
        &self,
        services: &BTreeSet<ServiceName>,
        within: Duration,
        heard: impl Fn(BTreeSet<NodeName>, Vec<ServedPod>),
    ) {
        let asked = stream::iter(self.peers.hosts()).for_each_concurrent(MAX_ASKED, async |(peer, nodes)| {
            match tokio::time::timeout(within, self.ask(peer, services)).await {
                Ok(Ok(served)) => heard(nodes, served),
                Ok(Err(error)) => {
                    tracing::debug!(peer = %peer.address, %error, "a host does not answer with its pods");
                }
                Err(_) => {
                    tracing::debug!(peer = %peer.address, "a host does not answer with its pods in time")
                }
            }
        });
        asked.await;
    }

    async fn ask(&self, peer: Peer, services: &BTreeSet<ServiceName>) -> io::Result<Vec<ServedPod>> {
        serving::ask(self.open(peer, SERVING_PROTOCOL).await?, services).await
    }

    async fn connect_by(
        &self,
        endpoint: &Endpoint,
        port: u16,
        within: Duration,
        connect: impl AsyncFnOnce(Peer) -> io::Result<(TunnelStream, TunnelReply)>,
    ) -> Result<TunnelStream, TunnelError> {
        let node = &endpoint.node;
        let peer = self.peers.of_node(node).ok_or_else(|| TunnelError::NoProxy(node.clone()))?;
        let connected = tokio::time::timeout(within, connect(peer)).await;
        let answer = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        if answer.is_ok() && self.silent.has_some() {
            self.silent.answered(&peer, Instant::now());
        }
        match answer {
            Ok((stream, TunnelReply::Connected)) => Ok(stream),
            Ok((_, TunnelReply::Closed)) => Err(EnterError::Closed.into()),
            Ok((_, TunnelReply::Unknown)) => Err(EnterError::Unknown.into()),
            Ok((_, TunnelReply::NotListening)) => Err(TunnelError::NotListening(port)),
            Err(error) => Err(TunnelError::Unreachable { node: node.clone(), peer, error }),
        }
    }

    async fn open(&self, peer: Peer, protocol: &[u8]) -> io::Result<TunnelStream> {
        open(&self.key, peer, protocol).await
    }
}

async fn open(key: &ProxyKey, peer: Peer, protocol: &[u8]) -> io::Result<TunnelStream> {
    let config = client_config(key, peer.fingerprint, protocol).map_err(io::Error::other)?;
    let stream = Socket::new(socket::connect(peer.address).await?)?;
    let name = ServerName::IpAddress(IpAddr::from(peer.address.ip()));
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

async fn ask_for(
    mut stream: TunnelStream,
    endpoint: &Endpoint,
    port: u16,
) -> io::Result<(TunnelStream, TunnelReply)> {
    let line = format!("{} {} {port}\n", endpoint.pod, endpoint.assignment);
    stream.write_all(line.as_bytes()).await?;
    stream.flush().await?;
    let byte = stream.read_u8().await?;
    let reply = TunnelReply::of_byte(byte).ok_or_else(|| io::Error::other("it gave an unknown answer"))?;
    Ok((stream, reply))
}
