//! The socket to the workers of this host: takes what they say about their pods, and tells them when a pod that is to
//! be stopped has let go of its last request.
//!
//! The protocol is in [`common::handover`]. Only the user of the proxy can open the socket (0600).

mod connection;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::handover::{FromWorker, lines, to_line};
use common::ids::NodeName;
use futures_util::{SinkExt, StreamExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::connection::Connection;
use crate::gate::Gates;
use crate::names::NamesStatus;
use crate::saved_pods;
use crate::workers::{ConnectionId, Workers};

/// The most connections at a time: far more than a host has workers, with one of a supervisor each.
const MAX_CONNECTIONS: usize = 4_096;
/// Between two looks for workers that do not come back.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(10);
/// The wait after a connection could not be accepted, as without free file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Why the socket cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// Another process serves it.
    #[error(
        "another proxy of this host serves {0}: one is enough for all workers; stop this one or the other"
    )]
    InUse(PathBuf),
    /// It cannot be created.
    #[error("the socket {path} cannot be created: {source}; see KUBELEET_PROXY_SOCKET")]
    Socket {
        /// Where it was to be.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
}

/// The bound socket. Workers can connect from now on, and are served by [`LocalServer::run`].
pub struct LocalServer {
    listener: UnixListener,
    path: PathBuf,
    workers: Arc<Workers>,
    gates: Arc<Gates>,
    names: watch::Receiver<NamesStatus>,
}

impl LocalServer {
    /// Binds the socket, and opens the gates that the proxy before this one has saved.
    ///
    /// # Errors
    /// If another process serves it, or it cannot be created.
    pub async fn bind(path: PathBuf, gates: Arc<Gates>) -> Result<Self, LocalError> {
        if UnixStream::connect(&path).await.is_ok() {
            return Err(LocalError::InUse(path));
        }
        let listener = match bind_private(&path) {
            Ok(listener) => listener,
            Err(source) => return Err(LocalError::Socket { path, source }),
        };
        let workers = Arc::new(Workers::new(gates.clone()));
        workers.restore(saved_pods::read(&saved_pods::path(&path)));
        let names = watch::Sender::default().subscribe();
        Ok(Self { listener, path, workers, gates, names })
    }

    /// Tells workers whether pods reach services by name. Else they are told nothing of it.
    pub(crate) fn telling(self, names: watch::Receiver<NamesStatus>) -> Self {
        Self { names, ..self }
    }

    /// Returns the nodes whose workers are connected, as they come and go.
    pub(crate) fn nodes(&self) -> watch::Receiver<BTreeSet<NodeName>> {
        self.workers.speaking()
    }

    /// Returns the addresses of this host in the networks of pods.
    pub(crate) fn gateways(&self) -> watch::Receiver<BTreeSet<Ipv4Addr>> {
        self.workers.gateways()
    }

    /// Serves workers until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut connections = JoinSet::new();
        let saving = saved_pods::keep(self.workers.clone(), saved_pods::path(&self.path), shutdown.clone());
        let saving = tokio::spawn(saving);
        let mut expiry = tokio::time::interval(EXPIRY_INTERVAL);
        let mut next = ConnectionId(0);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                _ = expiry.tick() => self.workers.expire(Instant::now()),
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                    Ok((stream, _)) => {
                        next.0 += 1;
                        let (workers, gates) = (self.workers.clone(), self.gates.clone());
                        let connection = Connection::new(next, workers, gates, self.names.clone(), stream);
                        connections.spawn(connection.run());
                    }
                    Err(error) => {
                        tracing::warn!("a connection to {} was not accepted: {error}", self.path.display());
                        tokio::time::sleep(ACCEPT_RETRY).await;
                    }
                },
            }
        }
        // A worker that finds no socket does not wait for a drain: nothing is let in any more.
        let _removed = std::fs::remove_file(&self.path);
        connections.shutdown().await;
        let _saved = saving.await;
    }
}

/// Asks whether a proxy answers on this socket.
///
/// # Errors
/// If none does, as a sentence. Waits as long as the proxy takes.
pub async fn ping(socket: &Path) -> Result<(), String> {
    let stream = UnixStream::connect(socket).await;
    let stream = stream.map_err(|error| format!("no proxy listens on {}: {error}", socket.display()))?;
    let mut lines = lines(stream);
    let sent = lines.send(to_line(&FromWorker::Ping)).await;
    match (sent, lines.next().await) {
        (Ok(()), Some(Ok(_))) => Ok(()),
        (Err(_), _) | (_, None | Some(Err(_))) => {
            Err(format!("the proxy on {} ended the connection", socket.display()))
        }
    }
}

/// Binds a socket that only this user can open, in place of one that no process serves any more. It is renamed when it
/// is private, so that no other user can connect to it before.
fn bind_private(path: &Path) -> std::io::Result<UnixListener> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let temporary = path.with_extension("new");
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&temporary)?;
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&temporary, path)?;
    Ok(listener)
}

#[cfg(test)]
mod tests;
