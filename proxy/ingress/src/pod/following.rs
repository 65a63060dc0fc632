//! Keeps the routing table up to date.

use std::sync::Arc;

use routing::snapshot::RoutingSnapshot;
use tokio::sync::watch;

use crate::pod::connection::Pools;
use crate::pod::routing_table::RoutingTable;
use crate::shared::IngressShared;

impl IngressShared {
    #[cfg(not(test))]
    fn new_pools(&self) -> Arc<Pools> {
        Arc::default()
    }

    #[cfg(test)]
    fn new_pools(&self) -> Arc<Pools> {
        self.ablation.as_ref().and_then(crate::tests::Ablation::pools).unwrap_or_default()
    }
}

pub(crate) async fn follow(
    mut snapshot: watch::Receiver<Arc<RoutingSnapshot>>,
    table: watch::Sender<Arc<RoutingTable>>,
    shared: Arc<IngressShared>,
) {
    loop {
        let latest = snapshot.borrow_and_update().clone();
        let next = table.borrow().next(&latest, &|| shared.new_pools());
        table.send_replace(Arc::new(next));
        if snapshot.changed().await.is_err() {
            return;
        }
    }
}
