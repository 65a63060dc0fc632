//! Answers `kubeleet cluster recover`: sends the saved pods whose containers exist.

use std::sync::Arc;

use store::StoreError;

use crate::session::context::SessionContext;
use crate::worker::Worker;

pub(crate) fn serve(context: &Arc<SessionContext>) {
    let worker = context.worker.clone();
    context.tasks.spawn(async move { answer(&worker).await });
}

pub(crate) async fn answer(worker: &Worker) {
    if let Err(error) = try_answer(worker).await {
        tracing::warn!(node = %worker.node, %error, "the saved state of the pods here could not be sent");
    }
}

async fn try_answer(worker: &Worker) -> Result<(), StoreError> {
    let Some(cluster) = worker.identity.cluster().filter(|_| worker.backup.is_used()) else { return Ok(()) };
    let request = worker.store.recovery_request().await?;
    let Some(request) = request.filter(|id| worker.backup.is_new_request(id)) else { return Ok(()) };
    // Without a list it would be a guess; the next pass asks the engine again.
    let Ok(containers) = worker.list().await else { return Ok(()) };
    let lines = worker.backup.answer(&cluster, &containers);
    worker.store.answer_recovery(&request, &worker.node, &lines).await?;
    tracing::info!(node = %worker.node, containers = containers.len(), "sent the saved state of the pods here");
    worker.backup.set_answered(request);
    Ok(())
}
