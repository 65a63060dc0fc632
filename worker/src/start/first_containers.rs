//! The first containers of a pod: its sandbox, and those without dependencies. The others start once the pod
//! is managed.

use engine::{Container, RuntimeError};
use model::spec::Port;

use crate::running::table::ManagedPod;
use crate::start::container_files;
use crate::start::files_unavailable::FilesUnavailable;
use crate::start::image_checks;
use crate::worker::Worker;

pub(crate) enum Interrupted {
    NoLease,
    NoFiles(FilesUnavailable),
    Failed { error: RuntimeError, image: String },
}

pub(crate) async fn start(worker: &Worker, managed: &mut ManagedPod) -> Result<Vec<Container>, Interrupted> {
    let mut started = Vec::new();
    image_checks::find(worker, managed).await;
    if managed.uses_sandbox(worker) {
        let sandbox = run_sandbox(worker, managed).await?;
        managed.sandbox = Some(sandbox.handle.clone());
        started.push(sandbox);
    }
    let spec = managed.spec.clone();
    let first = spec.containers.iter().enumerate().filter(|(_, container)| container.depends_on.is_empty());
    for (index, container) in first {
        let Some(mut request) = managed.request(worker, index) else { continue };
        let mut provided = container_files::provide(worker, &request).await.map_err(Interrupted::NoFiles)?;
        request.files = std::mem::take(&mut provided.files);
        worker.shared.provide(&mut request).await.map_err(Interrupted::NoFiles)?;
        // Pulls may have taken minutes.
        let permit = worker.lease.permit_start(worker.now()).ok_or(Interrupted::NoLease)?;
        let run = worker.runtime.run(&request).await;
        drop(permit);
        let run = run.map_err(|error| Interrupted::Failed { error, image: container.image.clone() })?;
        worker.known.insert(&run);
        started.push(run);
    }
    let now = worker.now();
    let observed = managed.observe(&started.iter().collect::<Vec<_>>());
    managed.note_observed(&observed);
    // The acknowledgement lacks the single containers.
    managed.is_reported = !managed.has_several() && managed.status().reason.is_empty();
    for container in managed.containers.iter_mut().filter(|container| container.handle.is_some()) {
        container.set_started(now);
    }
    Ok(started)
}

async fn run_sandbox(worker: &Worker, managed: &ManagedPod) -> Result<Container, Interrupted> {
    let identity = managed.identity(worker);
    let ports: Vec<Port> = managed.spec.containers.iter().flat_map(|one| one.ports.clone()).collect();
    let permit = worker.lease.permit_start(worker.now()).ok_or(Interrupted::NoLease)?;
    let run = worker.runtime.run_sandbox(&identity, &ports).await;
    drop(permit);
    let sandbox = run.map_err(|error| Interrupted::Failed { error, image: "its sandbox".to_owned() })?;
    worker.known.insert(&sandbox);
    Ok(sandbox)
}
