//! The sockets of this process, and the grace periods after it stops accepting.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use daemon::listen::{Presence, datagrams_at, listen_at};
use parking_lot::Mutex;
use tokio::net::{TcpListener, UdpSocket};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::socket;

const STOP_WITHIN: Duration = Duration::from_secs(10);
/// Long because database connections last.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(24 * 60 * 60);
const INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct Listening {
    process: Arc<Process>,
    stopped: CancellationToken,
}

#[derive(Debug)]
struct Process {
    shutdown: CancellationToken,
    stopped: CancellationToken,
    sockets: Mutex<Sockets>,
}

#[derive(Debug, Default)]
struct Sockets {
    open: HashMap<SocketName, Weak<AnySocket>>,
    inherited: HashMap<SocketName, OwnedFd>,
}

/// Transport and requested address, which may have port 0.
type SocketName = String;

type AnySocket = dyn AsFd + Send + Sync;

impl From<CancellationToken> for Listening {
    fn from(shutdown: CancellationToken) -> Self {
        let stopped = shutdown.child_token();
        let process = Process { shutdown, stopped: stopped.clone(), sockets: Mutex::default() };
        Self { process: Arc::new(process), stopped }
    }
}

impl Listening {
    /// With each request a thread checks for the stop: a shared token would contend.
    pub fn of_thread(&self) -> Self {
        Self { process: self.process.clone(), stopped: self.stopped.child_token() }
    }

    pub fn tcp(&self, address: SocketAddr) -> io::Result<Arc<TcpListener>> {
        self.tcp_at(address, Presence::Required)
    }

    pub fn tcp_at(&self, address: SocketAddr, presence: Presence) -> io::Result<Arc<TcpListener>> {
        let name = format!("tcp {address}");
        let mut sockets = self.process.sockets.lock();
        let listener = match sockets.inherited.remove(&name) {
            Some(socket) => {
                let listener = std::net::TcpListener::from(socket);
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener)?
            }
            None => listen_at(address, presence)?,
        };
        socket::keep_alive(&listener)?;
        let listener = Arc::new(listener);
        let open = Arc::downgrade(&listener);
        sockets.open.insert(name, open);
        Ok(listener)
    }

    pub fn udp_at(&self, address: SocketAddr, presence: Presence) -> io::Result<Arc<UdpSocket>> {
        let name = format!("udp {address}");
        let mut sockets = self.process.sockets.lock();
        let socket = match sockets.inherited.remove(&name) {
            Some(socket) => std::net::UdpSocket::from(socket),
            None => datagrams_at(address, presence)?,
        };
        socket.set_nonblocking(true)?;
        let socket = Arc::new(UdpSocket::from_std(socket)?);
        let open = Arc::downgrade(&socket);
        sockets.open.insert(name, open);
        Ok(socket)
    }

    pub(crate) fn inherit(&self, name: SocketName, socket: OwnedFd) {
        self.process.sockets.lock().inherited.insert(name, socket);
    }

    pub fn drop_inherited(&self) {
        for (name, _) in self.process.sockets.lock().inherited.drain() {
            tracing::info!("the proxy before this one listened on {name}, and this one does not");
        }
    }

    pub(crate) fn live_sockets(&self) -> Vec<(SocketName, Arc<AnySocket>)> {
        let mut sockets = self.process.sockets.lock();
        sockets.open.retain(|_, socket| socket.strong_count() > 0);
        let open = sockets.open.iter().filter_map(|(name, socket)| Some((name.clone(), socket.upgrade()?)));
        let unclaimed = sockets.inherited.iter().filter_map(|(name, socket)| {
            let socket: Arc<AnySocket> = Arc::new(socket.try_clone().ok()?);
            Some((name.clone(), socket))
        });
        open.chain(unclaimed).collect()
    }

    pub fn stopped(&self) -> CancellationToken {
        self.stopped.clone()
    }

    pub async fn until_stopped(&self) {
        self.stopped.cancelled().await;
    }

    /// Unlike [`until_stopped`](Self::until_stopped), does not complete at a take-over.
    pub async fn until_shutdown(&self) {
        self.process.shutdown.cancelled().await;
    }

    pub fn hand_over(&self) {
        // Clients of an open socket that is never accepted from would wait.
        self.process.sockets.lock().inherited.clear();
        self.process.stopped.cancel();
    }

    pub fn is_handed_over(&self) -> bool {
        self.stopped.is_cancelled() && !self.process.shutdown.is_cancelled()
    }

    /// Waits at most 10 s after a shutdown and a day after a take-over. Returns true if all have ended.
    pub async fn wait_for_connections(&self, connections: &TaskTracker) -> bool {
        connections.close();
        let too_long = async {
            tokio::select! {
                () = self.until_shutdown() => tokio::time::sleep(STOP_WITHIN).await,
                () = async {
                    self.until_stopped().await;
                    tokio::time::sleep(HANDED_OVER_WITHIN).await;
                } => {}
            }
        };
        tokio::select! {
            biased;
            () = connections.wait() => true,
            () = too_long => false,
        }
    }
}

/// `advice` is a sentence, logged with the first error.
pub async fn until_it_works<T, F>(advice: &str, mut listen: impl FnMut() -> F) -> T
where
    F: Future<Output = io::Result<T>>,
{
    let mut has_warned = false;
    loop {
        match listen().await {
            Ok(listening) => return listening,
            Err(error) if !has_warned => {
                has_warned = true;
                tracing::warn!("{error}; trying again every 5 s. {advice}");
            }
            Err(_) => {}
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
