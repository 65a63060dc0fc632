//! Pulls images before pods are stopped for others that need them: a scheduler asks, and stops none until
//! this node has them.

use std::sync::Arc;

use common::ids::SpecId;
use common::store::{PreparedImages, Store, StoreError};

use crate::context::SessionContext;

/// Answers a request in the background.
pub(crate) fn answer(context: &Arc<SessionContext>, spec: SpecId) {
    let task_context = context.clone();
    context.tasks.spawn(async move {
        tokio::select! {
            () = task_context.tasks.stopping().cancelled() => {}
            result = pull_and_note(&task_context, &spec) => {
                if let Err(error) = result {
                    // The scheduler asks again.
                    tracing::debug!(%spec, %error, "the answer to a request to pull images could not be written");
                }
            }
        }
    });
}

async fn pull_and_note(context: &SessionContext, spec: &SpecId) -> Result<(), StoreError> {
    let worker = &context.worker;
    let note = async |images| worker.store.note_prepared(spec, &worker.node, &images).await;
    let mut pull = std::pin::pin!(pull(context, spec));
    note(PreparedImages::Pulling).await?;
    let images = loop {
        tokio::select! {
            images = &mut pull => break images?,
            () = tokio::time::sleep(Store::PREPARING_INTERVAL) => note(PreparedImages::Pulling).await?,
        }
    };
    note(images).await
}

async fn pull(context: &SessionContext, spec: &SpecId) -> Result<PreparedImages, StoreError> {
    let worker = &context.worker;
    // Of a specification that is gone nothing is needed.
    let Some(spec) = worker.store.pod_spec(spec).await? else { return Ok(PreparedImages::Ready) };
    for container in &spec.containers {
        let image = &container.image;
        if let Err(error) = worker.runtime.ensure_image(image, container.pull_policy, &worker.logins).await {
            tracing::warn!(image, %error, "the image cannot be pulled: the pods that run are not replaced");
            return Ok(PreparedImages::Failed(format!("pulling {image} failed: {error}")));
        }
        worker.image_uses.note(image);
    }
    Ok(PreparedImages::Ready)
}
