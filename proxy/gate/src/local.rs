//! The socket on which workers of this host report and stop their pods, and learn when these are drained.
//!
//! [`model::network::handover`] defines the protocol. Only the proxy's user can open the socket (0600).

mod connection;
mod host;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use daemon::state_file::IfFound;
use futures_util::{SinkExt, StreamExt};
use model::ids::NodeName;
use model::network::handover::{FromWorker, Gateway, Lines, lines, to_line};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::host::LocalHost;
use crate::gates::Gates;
use crate::listening::Listening;
use crate::name_reach::KnownNameReach;
use crate::pods_file;
use crate::take_over::{self, Former, TakeOverError};
use crate::workers::{ConnectionId, Workers};

const MAX_CONNECTIONS: usize = 4_096;
const EXPIRY_INTERVAL: Duration = Duration::from_secs(10);
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    #[error(
        "another proxy of this host serves {0}: one is enough for all workers; stop this one or the other, or take its \
         place with `kubeleet proxy --take-over`"
    )]
    InUse(PathBuf),
    #[error("the proxy that serves {path} does not hand over: {source}; it serves on")]
    TakeOver { path: PathBuf, source: TakeOverError },
    #[error("the socket {path} cannot be created: {source}; see KUBELEET_PROXY_SOCKET")]
    Socket { path: PathBuf, source: std::io::Error },
}

/// Its socket is bound: workers can connect before [`run`](Self::run).
pub struct LocalServer {
    listener: UnixListener,
    path: PathBuf,
    host: LocalHost,
    listening: Listening,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketEnd {
    UntilShutdown,
    /// The process that took over has ended: this one must end its requests at once.
    UntilNextEnded,
}

impl LocalServer {
    pub async fn bind(path: PathBuf, gates: Arc<Gates>) -> Result<Self, LocalError> {
        if UnixStream::connect(&path).await.is_ok() {
            return Err(LocalError::InUse(path));
        }
        let server = Self::in_place(path, gates)?;
        server.host.insert_saved(pods_file::read(&pods_file::path(&server.path)));
        Ok(server)
    }

    /// Without a running process, this is [`bind`](Self::bind).
    pub async fn take_over(
        path: PathBuf,
        gates: Arc<Gates>,
        listening: &Listening,
    ) -> Result<Self, LocalError> {
        let Ok(stream) = UnixStream::connect(&path).await else { return Self::bind(path, gates).await };
        let mut former = match take_over::ask(stream, listening).await {
            Ok(former) => former,
            Err(source) => return Err(LocalError::TakeOver { path, source }),
        };
        // Binds first: workers look for this socket as soon as the former process disconnects them.
        let server = Self::in_place(path, gates)?;
        match take_over::take(&mut former).await {
            Ok(rows) => {
                server.host.insert_saved(rows);
                server.host.workers.keep_in_step(Former::connect(former));
                tracing::info!("took the place of the former proxy, which finishes its connections");
            }
            Err(error) => {
                tracing::warn!("the proxy before has ended instead of handing over: {error}");
                server.host.insert_saved(pods_file::read(&pods_file::path(&server.path)));
            }
        }
        Ok(server)
    }

    fn in_place(path: PathBuf, gates: Arc<Gates>) -> Result<Self, LocalError> {
        let listener = match bind_private(&path) {
            Ok(listener) => listener,
            Err(source) => return Err(LocalError::Socket { path, source }),
        };
        let listening = CancellationToken::new().into();
        Ok(Self { listener, path, host: LocalHost::new(gates), listening })
    }

    #[must_use]
    pub fn giving(self, listening: Listening) -> Self {
        Self { listening, ..self }
    }

    pub fn telling(self, names: watch::Receiver<KnownNameReach>) -> Self {
        Self { host: LocalHost { names, ..self.host }, ..self }
    }

    pub fn former(&self) -> Option<Former> {
        self.host.workers.former()
    }

    pub fn workers(&self) -> Arc<Workers> {
        self.host.workers.clone()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn nodes(&self) -> watch::Receiver<BTreeSet<NodeName>> {
        self.host.workers.speaking()
    }

    pub fn gateways(&self) -> watch::Receiver<BTreeSet<Gateway>> {
        self.host.workers.gateways()
    }

    /// After a take-over, follows the next process until its end.
    pub async fn run(mut self, shutdown: CancellationToken) -> SocketEnd {
        let mut connections = JoinSet::new();
        let stop_saving = shutdown.child_token();
        let saving = pods_file::keep_in_file(
            self.host.workers.clone(),
            pods_file::path(&self.path),
            stop_saving.clone(),
        );
        let saving = tokio::spawn(saving);
        let mut expiry = tokio::time::interval(EXPIRY_INTERVAL);
        let mut next = ConnectionId(0);
        let taken = loop {
            tokio::select! {
                () = shutdown.cancelled() => break None,
                _ = expiry.tick() => self.host.workers.expire(Instant::now()),
                Some(ended) = connections.join_next() => {
                    if let Ok(Some(asking)) = ended
                        && let Some(taken) = self.give(asking).await
                    {
                        break Some(taken);
                    }
                }
                accepted = self.listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                    Ok((stream, _)) => {
                        next.0 += 1;
                        connections.spawn(self.host.connection(next, lines(stream)).run());
                    }
                    Err(error) => {
                        tracing::warn!("a connection to {} was not accepted: {error}", self.path.display());
                        tokio::time::sleep(ACCEPT_RETRY).await;
                    }
                },
            }
        };
        if taken.is_none() {
            // Without a socket, workers do not wait for a drain, and this process admits nothing any more.
            let _removed = std::fs::remove_file(&self.path);
        }
        connections.shutdown().await;
        stop_saving.cancel();
        let _saved = saving.await;
        match taken {
            None => SocketEnd::UntilShutdown,
            Some(next) => self.serve_next(next, shutdown).await,
        }
    }

    async fn give(&mut self, mut next: Lines) -> Option<Lines> {
        tracing::info!("the next proxy process asks for the sockets");
        match take_over::give(&mut next, &self.listening).await {
            Ok(()) => {
                self.listening.hand_over();
                Some(next)
            }
            Err(error) => {
                tracing::warn!(
                    "the next proxy process did not take the sockets: {error}; this one serves on"
                );
                // The next process may have replaced the socket.
                match bind_private(&self.path) {
                    Ok(listener) => self.listener = listener,
                    Err(error) => {
                        tracing::error!(
                            "the socket {} cannot be created again: {error}",
                            self.path.display()
                        );
                    }
                }
                None
            }
        }
    }

    async fn serve_next(self, mut next: Lines, shutdown: CancellationToken) -> SocketEnd {
        if take_over::tell(&mut next, self.host.workers.rows()).await.is_err() {
            return SocketEnd::UntilNextEnded;
        }
        tracing::info!("the next proxy process serves; this one ends with its last connection");
        let id = ConnectionId(u64::MAX);
        let ended = shutdown.run_until_cancelled(self.host.connection(id, next).of_next().run()).await;
        if ended.is_some() { SocketEnd::UntilNextEnded } else { SocketEnd::UntilShutdown }
    }
}

/// # Errors
/// A sentence. Has no timeout.
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

fn bind_private(path: &Path) -> std::io::Result<UnixListener> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let temporary = path.with_extension("new");
    std::fs::remove_file(&temporary).if_found()?;
    let listener = UnixListener::bind(&temporary)?;
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&temporary, path)?;
    Ok(listener)
}

#[cfg(test)]
mod tests;
