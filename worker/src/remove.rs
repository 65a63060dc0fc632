//! Containers that are nobody's: stopped and removed beside everything else, and told to nobody.

use std::sync::Arc;

use crate::life::Life;
use crate::runtime::Container;

/// Stops and removes a container, unless that is under way already. When it fails the next look finds it again.
pub(crate) fn remove(life: &Arc<Life>, container: Container) {
    if !life.table.leaves(&container.handle, &container.pod) {
        return;
    }
    let doing = life.clone();
    life.spawn(async move {
        let Container { handle, pod, grace, .. } = container;
        tracing::info!(node = %doing.worker.node, %pod, container = handle, "not this node's any more: removing it");
        if let Err(error) = doing.worker.runtime.stop(&handle, grace).await {
            tracing::warn!(node = %doing.worker.node, %pod, container = handle, %error, "can not be removed yet");
        }
        doing.table.left(&handle);
    });
}
