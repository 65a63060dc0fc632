//! Removes containers that are not this node's, in the background. Nothing is reported to Redis.

use std::sync::Arc;

use crate::context::SessionContext;
use crate::measure::{self, StopReason};
use crate::runtime::Container;

/// Stops and removes a container, unless that is under way already. If it fails, the next look at the
/// containers finds the container again.
pub(crate) fn remove(context: &Arc<SessionContext>, container: Container) {
    if !context.table.begin_removal(&container.handle, &container.pod) {
        return;
    }
    let task_context = context.clone();
    context.tasks.spawn(async move {
        let node = &task_context.worker.node;
        let Container { handle, pod, grace, .. } = container;
        tracing::info!(%node, %pod, container = handle, "removing a container of another node's pod");
        match task_context.worker.runtime.stop(&handle, grace).await {
            Ok(()) => measure::stop(StopReason::NotAssigned),
            Err(error) => {
                tracing::warn!(%node, %pod, container = handle, %error, "container removal failed; retrying");
            }
        }
        task_context.table.end_removal(&handle);
    });
}
