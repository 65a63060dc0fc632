//! Removes containers that no pod of this node needs, in the background, without a report to Redis.

use std::sync::Arc;
use std::time::Duration;

use engine::kept_logs::KeptOwner;
use engine::{Container, RuntimeError};
use futures_util::FutureExt;

use crate::handover::close_all::drain_and_stop;
use crate::session::context::SessionContext;
use crate::support::measure::{self, ContainerStopReason};

/// The pod's own setting is not known here.
const MAX_DRAIN: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    AssignedAnew,
    NoRecord,
    EndedLongAgo,
}

impl Why {
    fn as_str(self) -> &'static str {
        match self {
            Why::AssignedAnew => "its pod is assigned anew",
            Why::NoRecord => "there is no record of its pod",
            Why::EndedLongAgo => "its pod ended long ago",
        }
    }
}

/// After a failure the next pass finds the container again.
pub(crate) fn remove(context: &Arc<SessionContext>, container: Container, why: Why) {
    if !context.table.begin_removal(&container.handle, &container.pod) {
        return;
    }
    let task_context = context.clone();
    context.tasks.spawn(async move {
        let node = &task_context.worker.node;
        let Container { handle, pod, .. } = container.clone();
        tracing::info!(%node, %pod, container = handle, "removing a container: {}", why.as_str());
        let proxy = task_context.worker.proxy.as_deref();
        let stop = |containers| keep_logs_and_stop(&task_context, containers).boxed();
        match drain_and_stop(proxy, &[&container], MAX_DRAIN, stop).await {
            Ok(()) if why == Why::EndedLongAgo => {}
            Ok(()) => measure::stop(ContainerStopReason::NotAssigned),
            Err(error) => {
                tracing::warn!(%node, %pod, container = handle, %error, "container removal failed; retrying");
            }
        }
        task_context.table.end_removal(&handle);
    });
}

async fn keep_logs_and_stop(
    context: &SessionContext,
    containers: Vec<Container>,
) -> Result<(), RuntimeError> {
    for container in containers {
        keep_log(context, &container).await;
        context.worker.runtime.stop(&container.handle, container.grace).await?;
    }
    Ok(())
}

async fn keep_log(context: &SessionContext, container: &Container) {
    let worker = &context.worker;
    if !worker.kept_logs.is_on() {
        return;
    }
    // First: the pod may run elsewhere, and Redis may take seconds to answer.
    if worker.runtime.halt(&container.handle, container.grace).await.is_err() {
        return;
    }
    // The record of a deleted pod remains for an hour.
    let Ok(Some(record)) = worker.store.pod(&container.pod).await else { return };
    let owner = KeptOwner {
        pod: container.pod.clone(),
        name: format!("{}-{}", record.name, record.replica),
        service: record.service,
        container: container.name.clone(),
    };
    worker.kept_logs.keep(&*worker.runtime, &container.handle, owner).await;
}
