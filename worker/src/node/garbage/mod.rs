//! The loop that removes unneeded images and logs from this node's disk, and reports a full disk.

pub(crate) mod answer;
pub(crate) mod decide;
pub(crate) mod image_uses;

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use daemon::backoff::Backoff;
use daemon::control_loop::{Loop, Next};
use model::spec::{ContainerSpec, PullPolicy};
use store::StoreError;

use self::decide::{DiskSpace, Removal};
use crate::session::context::SessionContext;
use crate::session::reply_class::ReplyClass;

const INTERVAL: Duration = Duration::from_secs(10);
/// In passes: a failover may lose a report.
const REPORT_EVERY: u32 = 30;
/// Per pass: something else may fill the disk, and gets time to end.
const MAX_REMOVALS: usize = 200;

pub(crate) struct GarbageLoop {
    context: Arc<SessionContext>,
    is_removing: bool,
    is_full: bool,
    reported: Option<(bool, u32)>,
}

impl Loop<StoreError> for GarbageLoop {
    const NAME: &'static str = "garbage";
    const BACKOFF: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(300));

    async fn step(&mut self) -> Result<Next, StoreError> {
        let context = self.context.clone();
        let worker = &context.worker;
        if !worker.uses_machine {
            return Ok(Next::Rest);
        }
        worker.kept_logs.expire().await;
        for image in images_of_pods(&context, |container| is_pullable(container.pull_policy)) {
            worker.image_uses.note(&image);
        }
        worker.image_uses.save().await;
        self.remove_logs_elsewhere().await;
        let Some(disk) = space(&context).await else { return Ok(Next::Rest) };
        let disk = self.make_room(disk).await;
        self.is_full = decide::is_full(disk, context.worker.config.disk_marks, self.is_full);
        self.report(disk).await;
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        tokio::time::sleep(INTERVAL).await;
        Ok(())
    }

    /// The heartbeat logs when Redis is unavailable.
    fn is_logged(&self, error: &StoreError, _failures: u32) -> bool {
        !error.is_transient()
    }
}

impl GarbageLoop {
    pub(crate) fn new(context: Arc<SessionContext>) -> Self {
        Self { context, is_removing: false, is_full: false, reported: None }
    }

    async fn remove_logs_elsewhere(&self) {
        let worker = &self.context.worker;
        let limit = f64::from(worker.config.disk_marks.high);
        for _ in 0..MAX_REMOVALS {
            let Some(disk) = space_of_logs(&self.context).await else { return };
            if disk.used_bytes_percent() <= limit || worker.kept_logs.size().await.0 == 0 {
                return;
            }
            worker.kept_logs.remove_oldest().await;
        }
    }

    async fn make_room(&mut self, mut disk: DiskSpace) -> DiskSpace {
        let context = self.context.clone();
        let (worker, marks) = (&context.worker, context.worker.config.disk_marks);
        let limit = if self.is_removing { marks.low } else { marks.high };
        if disk.used_percent() <= f64::from(limit) {
            self.is_removing = false;
            return disk;
        }
        // Logs are removed nevertheless.
        let removable = removable_images(&context).await.unwrap_or_else(|error| {
            worker.redis_log.failed(&error);
            RemovableImages::default()
        });
        let has_logs = space_of_logs(&context).await.is_none();
        let mut images = removable.images;
        for _ in 0..MAX_REMOVALS {
            // On another disk they free nothing here.
            let kept_logs = if has_logs { worker.kept_logs.size().await.0 } else { 0 };
            match decide::next_removal(disk, marks, kept_logs, &images, self.is_removing) {
                None => break,
                Some(Removal::OldestKeptLog) => worker.kept_logs.remove_oldest().await,
                Some(Removal::Image(image)) => {
                    images.retain(|other| *other != image);
                    remove_image(&context, &image).await;
                }
            }
            self.is_removing = true;
            let Some(now) = space(&context).await else { break };
            disk = now;
        }
        self.is_removing &= disk.used_percent() > f64::from(marks.low);
        disk
    }

    async fn report(&mut self, disk: DiskSpace) {
        let is_news = match &mut self.reported {
            // A node without a problem has none in its record.
            None => self.is_full,
            Some((reported, looks)) => {
                *looks += 1;
                *reported != self.is_full || (self.is_full && *looks >= REPORT_EVERY)
            }
        };
        if !is_news && self.reported.is_some() {
            return;
        }
        let what = match disk.used_inodes_percent() > disk.used_bytes_percent() {
            true => "inodes (the number of files)",
            false => "bytes",
        };
        let problem = self.is_full.then(|| {
            format!(
                "{:.0} % of the {what} of the disk of containers is used: no new pods are placed here until there is \
                 room; `kubeleet gc` removes images that no service needs",
                disk.used_percent()
            )
        });
        let reply = self.context.session.report_disk_problem(problem.as_deref().unwrap_or_default()).await;
        if let ReplyClass::Reply(()) = self.context.classify("reporting a full disk", reply) {
            self.reported = Some((self.is_full, 0));
        }
    }
}

async fn space(context: &SessionContext) -> Option<DiskSpace> {
    let directory = engine_directory(context).await;
    tokio::task::spawn_blocking(move || measure(&directory)).await.ok()?
}

async fn space_of_logs(context: &SessionContext) -> Option<DiskSpace> {
    let (engine, logs) = (engine_directory(context).await, context.worker.config.data_dir.clone());
    let measured = tokio::task::spawn_blocking(move || {
        let is_other = device(&engine)? != device(&logs)?;
        is_other.then(|| measure(&logs)).flatten()
    });
    measured.await.ok()?
}

async fn engine_directory(context: &SessionContext) -> PathBuf {
    let worker = &context.worker;
    worker.runtime.volumes_directory().await.unwrap_or_else(|| worker.config.data_dir.clone())
}

/// The device of the nearest existing parent: a worker in a container may not see the engine's directory, but
/// usually shares its disk.
fn device(directory: &Path) -> Option<u64> {
    directory.ancestors().find_map(|path| path.metadata().ok()).map(|found| found.dev())
}

fn measure(directory: &Path) -> Option<DiskSpace> {
    let found = directory.ancestors().find_map(|path| rustix::fs::statvfs(path).ok())?;
    // Like `df`: space reserved for the administrator is neither used nor available.
    let used = found.f_blocks.saturating_sub(found.f_bfree);
    let used_inodes = found.f_files.saturating_sub(found.f_ffree);
    Some(DiskSpace {
        total: used.saturating_add(found.f_bavail).saturating_mul(found.f_frsize),
        available: found.f_bavail.saturating_mul(found.f_frsize),
        total_inodes: used_inodes.saturating_add(found.f_favail),
        available_inodes: found.f_favail,
    })
}

/// The others came to the node by hand.
pub(crate) fn is_pullable(policy: PullPolicy) -> bool {
    policy != PullPolicy::Never
}

fn images_of_pods(context: &SessionContext, is_chosen: impl Fn(&ContainerSpec) -> bool) -> HashSet<String> {
    let images: Vec<Vec<String>> = context.table.map_managed(|managed| {
        let chosen = managed.spec.containers.iter().filter(|container| is_chosen(container));
        Some(chosen.map(|container| container.image.clone()).collect())
    });
    images.into_iter().flatten().collect()
}

/// Needed by no pod of this node and no service within its undo history.
#[derive(Default)]
struct RemovableImages {
    images: Vec<String>,
    /// They came from no registry.
    unpullable: Vec<String>,
}

async fn removable_images(context: &SessionContext) -> Result<RemovableImages, StoreError> {
    let mut removable = RemovableImages::default();
    for image in unneeded_images(context).await? {
        match context.worker.runtime.came_from_registry(&image).await {
            Ok(true) => removable.images.push(image),
            Ok(false) => removable.unpullable.push(image),
            Err(_) => {}
        }
    }
    Ok(removable)
}

async fn unneeded_images(context: &SessionContext) -> Result<Vec<String>, StoreError> {
    let worker = &context.worker;
    let used = worker.image_uses.ages();
    if used.is_empty() {
        return Ok(Vec::new());
    }
    let mut needed = images_of_pods(context, |_| true);
    let names = worker.store.service_names().await?;
    let services = worker.store.services(&names).await?;
    // The images of an unreadable service are unknown.
    if services.iter().any(Result::is_err) {
        return Ok(Vec::new());
    }
    for service in services.found() {
        let former = worker.store.former_generations(&service.name).await?;
        let pinned = former.iter().flat_map(|former| &former.images).chain(&service.images);
        needed.extend(pinned.flat_map(|image| [image.reference(), Some(image.id.clone())]).flatten());
        let specs = former.into_iter().map(|former| former.pod).chain([service.pod]);
        needed.extend(specs.flat_map(|spec| spec.containers).map(|container| container.image));
    }
    Ok(decide::removable(&used, &needed))
}

/// Any container, even another program's, keeps its image.
async fn remove_image(context: &SessionContext, image: &str) {
    let worker = &context.worker;
    match worker.runtime.remove_image(image).await {
        Ok(()) => {
            tracing::info!(node = %worker.node, image, "removed an image that no service needs");
            worker.image_uses.forget(image);
        }
        Err(error) => tracing::info!(node = %worker.node, image, %error, "an image could not be removed"),
    }
}
