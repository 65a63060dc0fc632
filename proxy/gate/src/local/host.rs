//! What the workers of this host speak to, whatever connects them.

use std::sync::Arc;

use model::network::handover::{Lines, lines};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::connection::LocalConnection;
use crate::gates::Gates;
use crate::name_reach::KnownNameReach;
use crate::pods_file::{self, PodsOfNodes};
use crate::workers::{ConnectionId, Workers};

/// What workers have said about their pods, and the gates that follow from it. Clones are the same host.
#[derive(Clone)]
pub struct LocalHost {
    pub(super) workers: Arc<Workers>,
    pub(super) names: watch::Receiver<KnownNameReach>,
}

impl LocalHost {
    /// Returns a host about whose pods nothing is known yet.
    pub fn new(gates: Arc<Gates>) -> Self {
        Self { workers: Arc::new(Workers::new(gates)), names: watch::Sender::default().subscribe() }
    }

    /// Opens the gates that the process before this one has saved.
    pub fn restore(&self, saved: PodsOfNodes) {
        self.workers.restore(saved);
    }

    /// Has all pods saved whenever something has changed, until `shutdown`, and then once more.
    pub async fn save(&self, write: impl Fn(PodsOfNodes), shutdown: CancellationToken) {
        let write = |pods, _| {
            write(pods);
            std::future::ready(true)
        };
        pods_file::keep(self.workers.clone(), write, shutdown).await;
    }

    /// Serves the connection of a worker until it ends. Later ones have larger numbers.
    pub async fn serve(&self, number: u64, stream: impl AsyncRead + AsyncWrite + Unpin) {
        // A connection of the next process is none of a worker.
        let _next = self.connection(ConnectionId(number), lines(stream)).run().await;
    }

    pub(super) fn connection<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        id: ConnectionId,
        lines: Lines<S>,
    ) -> LocalConnection<S> {
        LocalConnection::new(id, self.workers.clone(), self.names.clone(), lines)
    }
}
