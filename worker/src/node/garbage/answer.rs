//! Lists the garbage of this node for users, and removes it on request.

use model::node::usage::GarbageView;
use store::StoreError;

use super::{RemovableImages, removable_images, remove_image, space};
use crate::session::context::SessionContext;

pub(crate) async fn collect(context: &SessionContext, removes: bool) -> Result<GarbageView, StoreError> {
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
