//! Health checks of images, for containers whose specification has none, or only its times.

use crate::running::table::{ContainerChecks, ManagedPod};
use crate::worker::Worker;

pub(crate) async fn find(worker: &Worker, managed: &mut ManagedPod) {
    let spec = managed.spec.clone();
    for (spec, container) in spec.containers.iter().zip(&mut managed.containers) {
        let of_image = match spec.healthcheck {
            Some(ref own) if !own.has_only_times() => None,
            Some(_) | None => worker.runtime.image_check(&spec.image).await.unwrap_or_else(|error| {
                tracing::warn!(image = spec.image, %error, "it is unknown whether the image has a health check");
                None
            }),
        };
        container.checks = ContainerChecks::of(spec, of_image.as_ref());
    }
}
