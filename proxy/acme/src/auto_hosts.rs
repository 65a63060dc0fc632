//! The hosts of rules with `tls: auto`.

use std::sync::Arc;

use routing::snapshot::RoutingSnapshot;
use tokio::sync::watch;

#[derive(Clone)]
pub(crate) struct AutoHosts {
    snapshot: watch::Receiver<Arc<RoutingSnapshot>>,
    known: Vec<String>,
}

impl AutoHosts {
    pub(crate) fn new(snapshot: watch::Receiver<Arc<RoutingSnapshot>>) -> Self {
        Self { snapshot, known: Vec::new() }
    }

    pub(crate) fn hosts(&mut self) -> Vec<String> {
        self.known = self.snapshot.borrow_and_update().routes.auto_hosts().map(str::to_owned).collect();
        self.known.clone()
    }

    /// Cancel safe.
    pub(crate) async fn changed(&mut self) {
        loop {
            if self.snapshot.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            if !self.snapshot.borrow_and_update().routes.auto_hosts().eq(&self.known) {
                return;
            }
        }
    }
}
