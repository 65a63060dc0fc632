//! The state behind the workers' connections.

use std::sync::Arc;

use model::network::handover::{Lines, lines};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::connection::LocalConnection;
use crate::gates::Gates;
use crate::name_reach::KnownNameReach;
use crate::pods_file;
use crate::take_over::PodsOfNodes;
use crate::workers::{ConnectionId, Workers};

#[derive(Clone)]
pub struct LocalHost {
    pub(super) workers: Arc<Workers>,
    pub(super) names: watch::Receiver<KnownNameReach>,
}

impl LocalHost {
    pub fn new(gates: Arc<Gates>) -> Self {
        Self { workers: Arc::new(Workers::new(gates)), names: watch::Sender::default().subscribe() }
    }

    pub fn insert_saved(&self, saved: PodsOfNodes) {
        self.workers.insert_saved(saved);
    }

    /// Calls `write` after each change until `shutdown`, and then once more.
    pub async fn save(&self, write: impl Fn(PodsOfNodes), shutdown: CancellationToken) {
        let write = |pods, _| {
            write(pods);
            std::future::ready(true)
        };
        pods_file::keep(self.workers.clone(), write, shutdown).await;
    }

    /// Later connections have larger numbers.
    pub async fn serve(&self, number: u64, stream: impl AsyncRead + AsyncWrite + Unpin) {
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
