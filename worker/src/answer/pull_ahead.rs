//! Pulls images ahead: a scheduler stops pods for replacements only once this node has their images.

use std::sync::Arc;

use model::ids::{ServiceName, SpecId};
use store::{PrepareRequest, PreparedImages, Store, StoreError};

use crate::session::context::SessionContext;
use crate::start::pod_images;

pub(crate) fn answer(context: &Arc<SessionContext>, request: PrepareRequest) {
    let PrepareRequest { prepare: spec, service } = request;
    let task_context = context.clone();
    context.tasks.spawn(async move {
        tokio::select! {
            () = task_context.tasks.stopping().cancelled() => {}
            result = pull_and_note(&task_context, &spec, service.as_ref()) => {
                if let Err(error) = result {
                    // The scheduler asks again.
                    tracing::debug!(%spec, %error, "the answer to a request to pull images could not be written");
                }
            }
        }
    });
}

async fn pull_and_note(
    context: &SessionContext,
    spec: &SpecId,
    service: Option<&ServiceName>,
) -> Result<(), StoreError> {
    let worker = &context.worker;
    let note = async |images| worker.store.note_prepared(spec, &worker.node, &images).await;
    let mut pull = std::pin::pin!(pull(context, spec, service));
    note(PreparedImages::Pulling).await?;
    let images = loop {
        tokio::select! {
            images = &mut pull => break images?,
            () = tokio::time::sleep(Store::PREPARING_INTERVAL) => note(PreparedImages::Pulling).await?,
        }
    };
    note(images).await
}

async fn pull(
    context: &SessionContext,
    spec: &SpecId,
    service: Option<&ServiceName>,
) -> Result<PreparedImages, StoreError> {
    let worker = &context.worker;
    let pinned = match service {
        Some(service) if worker.runtime.has_images() => worker.store.pinned_images(service, spec).await?,
        Some(_) | None => Vec::new(),
    };
    // A deleted specification needs no images.
    let Some(spec) = worker.store.pod_spec(spec).await? else { return Ok(PreparedImages::Ready) };
    if let Err((error, image)) = pod_images::prepare(worker, &spec, &pinned).await {
        tracing::warn!(image, %error, "the image cannot be pulled: the pods that run are not replaced");
        return Ok(PreparedImages::Failed(format!("pulling {image} failed: {error}")));
    }
    Ok(PreparedImages::Ready)
}
