//! Lists the garbage of this node for users, and removes it on request.

use std::sync::Arc;

use bytes::Bytes;
use model::node::usage::GarbageView;
use store::{GarbageRequest, LogChunk, StoreError};

use super::{RemovableImages, removable_images, remove_image, space};
use crate::session::context::SessionContext;

pub(crate) fn answer(context: &Arc<SessionContext>, request: GarbageRequest) {
    let task_context = context.clone();
    context.tasks.spawn(async move {
        if let Err(error) = write(&task_context, &request).await {
            tracing::debug!(%error, "the answer to a request about garbage could not be written");
        }
    });
}

async fn write(context: &SessionContext, request: &GarbageRequest) -> Result<(), StoreError> {
    let store = &context.worker.store;
    let end = match collect(context, request.collect_garbage).await {
        Ok(view) => {
            let json = serde_json::to_vec(&view).unwrap_or_default();
            store.write_log(&request.id, &LogChunk::Output(Bytes::from(json))).await?;
            String::new()
        }
        Err(error) => error.to_string(),
    };
    store.write_log(&request.id, &LogChunk::End(end)).await.map(drop)
}

async fn collect(context: &SessionContext, removes: bool) -> Result<GarbageView, StoreError> {
    let worker = &context.worker;
    let RemovableImages { images, unpullable } = removable_images(context).await?;
    if removes {
        for image in &images {
            remove_image(context, image).await;
        }
    }
    let left = worker.image_uses.ages();
    let removed = images.iter().filter(|image| removes && !left.contains_key(*image)).cloned().collect();
    let (kept_logs, kept_log_bytes) = worker.kept_logs.size().await;
    let disk = space(context).await;
    Ok(GarbageView {
        node: Some(worker.node.clone()),
        disk_total_bytes: disk.map_or(0, |disk| disk.total),
        disk_available_bytes: disk.map_or(0, |disk| disk.available),
        kept_logs,
        kept_log_bytes,
        images,
        unpullable_images: unpullable,
        removed,
    })
}
