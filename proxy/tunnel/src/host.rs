//! This host's end of the tunnel: listens, announces its address, and follows the other proxies.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use daemon::backoff::Backoff;
use daemon::config::{Config, TunnelListen};
use daemon::state_file::StateFile;
use gate::listening::{self, Listening};
use gate::workers::Workers;
use model::ids::NodeName;
use model::value::secret_key::SecretKey;
use store::{Store, StoreError, channel};
use tokio::net::UdpSocket;
use tokio::sync::watch;

use super::key::ProxyKey;
use super::listen::TunnelListener;
use super::peers::{Peer, Peers};

pub const PORT: u16 = 7079;
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// A proxy without a sign of life for this long counts as gone.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

pub struct HostTunnel {
    pub config: Arc<Config>,
    pub store: Store,
    pub key: Arc<ProxyKey>,
    pub peers: Arc<Peers>,
    pub peers_file: PathBuf,
    pub workers: Arc<Workers>,
    pub listening: Listening,
    pub nodes: watch::Receiver<BTreeSet<NodeName>>,
}

impl HostTunnel {
    pub async fn run(self) {
        let (listening, stopped) = (self.listening.clone(), self.listening.stopped());
        let bound = stopped.run_until_cancelled(self.listen()).await;
        let Some((listener, address)) = bound.flatten() else { return };
        tracing::info!("proxies of other hosts reach the pods of this one at {address}");
        let (peers, file) = (self.peers.clone(), StateFile::new(&self.peers_file).private());
        let loss = "a proxy that is restarted without Redis reaches no other host";
        let saving = file.keep(SAVE_INTERVAL, peers.text(), || peers.text(), loss);
        let announcing = async { tokio::join!(self.announce(address), saving) };
        tokio::join!(listener.run(listening), stopped.run_until_cancelled(announcing));
    }

    /// `None` if other hosts cannot reach this one.
    async fn listen(&self) -> Option<(TunnelListener, SocketAddr)> {
        let advice = "Until then other hosts do not reach the pods of this one. KUBELEET_TUNNEL_LISTEN sets another \
                      address, or off.";
        listening::until_it_works(advice, || self.try_listen()).await
    }

    async fn try_listen(&self) -> io::Result<Option<(TunnelListener, SocketAddr)>> {
        let listen = match self.config.tunnel_listen {
            TunnelListen::Off => return Ok(None),
            TunnelListen::Address(address) => address,
            TunnelListen::Auto => match self.address_towards_redis().await? {
                Some(ip) if !ip.is_loopback() => SocketAddr::new(ip, PORT),
                Some(_) | None => {
                    tracing::info!(
                        "Redis is on this host, so other hosts do not reach its pods: with several hosts, set \
                         KUBELEET_TUNNEL_LISTEN to an address of this one, with port {PORT}"
                    );
                    return Ok(None);
                }
            },
        };
        let socket = self.listening.tcp(listen).map_err(|error| {
            io::Error::new(error.kind(), format!("the tunnel cannot listen on {listen}: {error}"))
        })?;
        let listener = TunnelListener::on(socket, &self.key, self.peers.clone(), self.workers.clone())?;
        let mut address = listener.address()?;
        if address.ip().is_unspecified()
            && let Some(ip) = self.address_towards_redis().await?
        {
            address.set_ip(ip);
        }
        Ok(Some((listener, address)))
    }

    async fn address_towards_redis(&self) -> io::Result<Option<IpAddr>> {
        let Some((host, port)) = self.config.redis.servers().into_iter().next() else { return Ok(None) };
        let lookup = tokio::net::lookup_host((host, port)).await;
        let unknown =
            |error| io::Error::other(format!("the address of Redis, {host}, is not known: {error}"));
        let Some(server) = lookup.map_err(unknown)?.next() else { return Ok(None) };
        let any: IpAddr =
            if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        // Connecting a UDP socket sends nothing, but selects the local address.
        let socket = UdpSocket::bind((any, 0)).await?;
        socket.connect(server).await?;
        Ok(Some(socket.local_addr()?.ip()))
    }

    async fn announce(mut self, address: SocketAddr) {
        let mut messages = self.store.subscribe(channel::PROXIES);
        let own = Peer { address, fingerprint: self.key.fingerprint() };
        let mut backoff = Backoff::starting_at(Duration::from_millis(100));
        loop {
            let wait = match self.exchange(own).await {
                Ok(()) => {
                    backoff.reset();
                    CHECK_INTERVAL
                }
                Err(error) => {
                    tracing::debug!(%error, "the other proxies cannot be read; the known ones stay");
                    backoff.next()
                }
            };
            tokio::select! {
                _hint = messages.next() => {}
                Ok(()) = self.nodes.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn exchange(&mut self, own: Peer) -> Result<(), StoreError> {
        let announced: HashMap<NodeName, String> = self.store.proxies().await?.into_iter().collect();
        let line = own.to_string();
        let nodes: Vec<NodeName> = self.nodes.borrow_and_update().iter().cloned().collect();
        let missing: Vec<NodeName> =
            nodes.iter().filter(|node| announced.get(*node) != Some(&line)).cloned().collect();
        if !missing.is_empty() {
            self.store.announce_proxy(&missing, &line).await?;
        }
        // An emptied Redis makes no host unreachable: its data will be recovered.
        if !announced.is_empty() || self.store.cluster_id().await?.is_some() {
            self.peers.set(others(announced, own));
        }
        // Last, so that the others are followed even while Redis rejects writes.
        let secret_key = self.config.secret_key.as_ref().map(SecretKey::id);
        self.store.proxy_lives(&nodes, secret_key, SIGN_OF_LIFE).await
    }
}

/// Skips other lines, which a newer version may write.
fn others(announced: HashMap<NodeName, String>, own: Peer) -> HashMap<NodeName, Peer> {
    let peer = |(node, line): (NodeName, String)| Some((node, line.parse::<Peer>().ok()?));
    announced.into_iter().filter_map(peer).filter(|(_, peer)| peer.fingerprint != own.fingerprint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_others_are_those_with_another_key_whose_line_can_be_read() {
        let own: Peer = format!("10.0.0.1:7079 {}", "a".repeat(64)).parse().unwrap();
        let lines = [
            ("w1", own.to_string()),
            ("w2", format!("10.0.0.2:7079 {}", "b".repeat(64))),
            ("w3", "10.0.0.3:7079".to_owned()),
            ("w4", String::new()),
        ];
        let announced = lines.map(|(node, line)| (NodeName::new(node).unwrap(), line)).into();
        let others: Vec<String> = others(announced, own).into_keys().map(|node| node.to_string()).collect();
        assert_eq!(others, ["w2"]);
    }
}
