//! Pulls images ahead: a scheduler stops pods for replacements only once this node has their images.

use model::ids::{ServiceName, SpecId};
use store::{PreparedImages, Store, StoreError};

use crate::session::context::SessionContext;
use crate::start::pod_images;

pub(super) async fn answer(
    context: &SessionContext,
    spec: &SpecId,
    service: &ServiceName,
) -> Result<(), StoreError> {
    tokio::select! {
        () = context.tasks.stopping().cancelled() => Ok(()),
        noted = pull_and_note(context, spec, service) => noted,
    }
}

async fn pull_and_note(
    context: &SessionContext,
    spec: &SpecId,
    service: &ServiceName,
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
    service: &ServiceName,
) -> Result<PreparedImages, StoreError> {
    let worker = &context.worker;
    let pinned = match worker.runtime.has_images() {
        true => worker.store.pinned_images(service, spec).await?,
        false => Vec::new(),
    };
    let Some(spec) = worker.store.pod_spec(spec).await? else { return Ok(PreparedImages::Ready) };
    if let Err((error, image)) = pod_images::prepare(worker, &spec, &pinned).await {
        tracing::warn!(image, %error, "the image cannot be pulled: the pods that run are not replaced");
        return Ok(PreparedImages::Failed(format!("pulling {image} failed: {error}")));
    }
    Ok(PreparedImages::Ready)
}
