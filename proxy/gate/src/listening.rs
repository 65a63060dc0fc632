//! What this process listens on, until when, and how long what is in flight then has to end.
//!
//! A process ends by a shutdown, or because the next one has taken its sockets: see [`crate::take_over`].

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use daemon::listen::{Presence, datagrams_at, listen_at};
use tokio::net::{TcpListener, UdpSocket};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::socket;

/// How long what is in flight may take to end after the proxy was asked to stop.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// How long it may take after the next process has taken the sockets: connections to databases last.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(24 * 60 * 60);
/// The wait until an address that cannot be listened on is tried again.
const INTERVAL: Duration = Duration::from_secs(5);

/// The sockets of this process, and how long it uses them. Clones are of the same process.
#[derive(Debug, Clone)]
pub struct Listening {
    process: Arc<Process>,
    /// Cancelled by a shutdown, and when the sockets were handed over.
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
    open: HashMap<SocketName, OpenSocket>,
    /// Those of the process before that were not asked for yet.
    inherited: HashMap<SocketName, OwnedFd>,
}

/// What a socket is for: the transport, and the address as it was asked for, so that port 0 finds it as well.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SocketName(String);

impl SocketName {
    fn tcp(address: SocketAddr) -> Self {
        Self(format!("tcp {address}"))
    }

    fn udp(address: SocketAddr) -> Self {
        Self(format!("udp {address}"))
    }

    pub(crate) fn new(name: &str) -> Self {
        Self(name.to_owned())
    }
}

impl fmt::Display for SocketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A socket for as long as something listens on it.
#[derive(Debug, Clone)]
enum OpenSocket {
    Tcp(Weak<TcpListener>),
    Udp(Weak<UdpSocket>),
}

/// A socket that is being handed over.
#[derive(Debug)]
pub(crate) enum HeldSocket {
    Tcp(Arc<TcpListener>),
    Udp(Arc<UdpSocket>),
    /// Of the process before, and nothing has asked for it yet.
    Unclaimed(OwnedFd),
}

impl OpenSocket {
    fn hold(&self) -> Option<HeldSocket> {
        match self {
            Self::Tcp(socket) => socket.upgrade().map(HeldSocket::Tcp),
            Self::Udp(socket) => socket.upgrade().map(HeldSocket::Udp),
        }
    }
}

impl AsFd for HeldSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Udp(socket) => socket.as_fd(),
            Self::Unclaimed(socket) => socket.as_fd(),
        }
    }
}

impl From<CancellationToken> for Listening {
    /// A process that listens until `shutdown`, and has inherited nothing.
    fn from(shutdown: CancellationToken) -> Self {
        let stopped = shutdown.child_token();
        let process = Process { shutdown, stopped: stopped.clone(), sockets: Mutex::default() };
        Self { process: Arc::new(process), stopped }
    }
}

impl Listening {
    /// Returns the same for one thread, whose connections do not wait for those of other threads when they
    /// ask whether it has stopped: each does with each request.
    pub fn of_thread(&self) -> Self {
        Self { process: self.process.clone(), stopped: self.stopped.child_token() }
    }

    /// Listens for connections at an address: on the socket of the process before, if it had one there.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn tcp(&self, address: SocketAddr) -> io::Result<Arc<TcpListener>> {
        self.tcp_at(address, Presence::Required)
    }

    /// As [`Listening::tcp`], also on an address that this host does not have yet.
    ///
    /// # Errors
    /// See [`Listening::tcp`].
    pub fn tcp_at(&self, address: SocketAddr, presence: Presence) -> io::Result<Arc<TcpListener>> {
        let name = SocketName::tcp(address);
        let mut sockets = self.lock();
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
        sockets.open.insert(name, OpenSocket::Tcp(Arc::downgrade(&listener)));
        Ok(listener)
    }

    /// Opens a socket for datagrams at an address, in the same way.
    ///
    /// # Errors
    /// If the address cannot be used.
    pub fn udp_at(&self, address: SocketAddr, presence: Presence) -> io::Result<Arc<UdpSocket>> {
        let name = SocketName::udp(address);
        let mut sockets = self.lock();
        let socket = match sockets.inherited.remove(&name) {
            Some(socket) => std::net::UdpSocket::from(socket),
            None => datagrams_at(address, presence)?,
        };
        socket.set_nonblocking(true)?;
        let socket = Arc::new(UdpSocket::from_std(socket)?);
        sockets.open.insert(name, OpenSocket::Udp(Arc::downgrade(&socket)));
        Ok(socket)
    }

    /// Keeps a socket of the process before until it is asked for.
    pub(crate) fn inherit(&self, name: SocketName, socket: OwnedFd) {
        self.lock().inherited.insert(name, socket);
    }

    /// Closes the sockets of the process before that nothing has asked for: their addresses are not
    /// configured any more.
    pub fn drop_inherited(&self) {
        for (name, _) in self.lock().inherited.drain() {
            tracing::info!("the proxy before this one listened on {name}, and this one does not");
        }
    }

    /// Returns all sockets that are listened on, and those that nothing has asked for yet.
    pub(crate) fn held(&self) -> Vec<(SocketName, HeldSocket)> {
        let mut sockets = self.lock();
        let held = |(name, socket): (&SocketName, &OpenSocket)| Some((name.clone(), socket.hold()?));
        let mut held: Vec<_> = sockets.open.iter().filter_map(held).collect();
        sockets.open.retain(|name, _| held.iter().any(|(other, _)| other == name));
        let unclaimed = sockets.inherited.iter().filter_map(|(name, socket)| {
            Some((name.clone(), HeldSocket::Unclaimed(socket.try_clone().ok()?)))
        });
        held.extend(unclaimed);
        held
    }

    /// Returns what is cancelled when nothing more is to be accepted.
    pub fn stopped(&self) -> CancellationToken {
        self.stopped.clone()
    }

    /// Completes when nothing more is to be accepted.
    pub async fn until_stopped(&self) {
        self.stopped.cancelled().await;
    }

    /// Completes at a shutdown, and not when the sockets are handed over.
    pub async fn until_shutdown(&self) {
        self.process.shutdown.cancelled().await;
    }

    /// The next process listens from now on.
    pub fn hand_over(&self) {
        // What this process keeps open and accepts nothing from would keep clients waiting.
        self.lock().inherited.clear();
        self.process.stopped.cancel();
    }

    /// Returns whether the next process listens, and this one only ends what it has accepted.
    pub fn is_handed_over(&self) -> bool {
        self.stopped.is_cancelled() && !self.process.shutdown.is_cancelled()
    }

    /// Waits until what was accepted has ended, and not longer than it may: 10 s after a shutdown, a day
    /// after the sockets were handed over. Returns whether it has.
    pub async fn have_ended(&self, connections: &TaskTracker) -> bool {
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

    fn lock(&self) -> MutexGuard<'_, Sockets> {
        self.process.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tries until it works. Says once why it does not, with `advice`, which is a sentence.
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
