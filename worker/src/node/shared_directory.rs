//! The directory that this machine's operator shares with other nodes, and the volumes in it.
//!
//! A wrong or unmounted file system would look like an empty volume. So the directory has a file with an id,
//! which the cluster records; a container gets a volume only while the ids match.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use daemon::config::{Config, RuntimeKind};
use daemon::state_file::{IfFound, StateFile};
use engine::{ContainerRequest, EngineVolume, VolumeOwner};
use model::ids::{ClusterId, ServiceName, VolumeName};
use model::service::volume::VolumeClaim;
use model::spec::VolumeKind;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use store::SharedDirectoryReport;
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::start::files_unavailable::FilesUnavailable;

const IDENTITY: &str = ".kubeleet-shared";
const REMOVING: &str = ".removing-";
const MAX_THREADS: usize = 4;
/// A hanging file system must not delay anything for ever.
const LIMIT: Duration = Duration::from_secs(10);
/// A slow removal continues in its thread, and its remains are found again.
const REMOVE_LIMIT: Duration = Duration::from_secs(60);
/// Any user of a container can write to its volumes.
const MODE: u32 = 0o777;

pub(crate) struct SharedDirectory {
    path: Option<PathBuf>,
    known: Mutex<Option<DirectoryIdentity>>,
    known_file: StateFile,
    threads: Arc<Semaphore>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct DirectoryIdentity {
    cluster: ClusterId,
    id: String,
}

impl SharedDirectory {
    /// A hanging file system keeps its threads, so their number is small.
    async fn blocking<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let threads = self.threads.clone();
        let done = tokio::time::timeout(limit, async move {
            let permit = threads.acquire_owned().await.map_err(io::Error::other)?;
            let work = move || {
                let _permit = permit;
                work()
            };
            tokio::task::spawn_blocking(work).await.unwrap_or_else(|panic| Err(io::Error::other(panic)))
        });
        let late = || {
            io::Error::new(ErrorKind::TimedOut, format!("the file system did not answer within {limit:?}"))
        };
        done.await.unwrap_or_else(|_| Err(late()))
    }

    pub(crate) fn new(config: &Config) -> Self {
        let known_file = config.data_dir.join(format!("{}.shared-directory", config.node));
        let known_file = StateFile::new(known_file).creating_directory();
        // Plain processes have no volumes.
        let path = config.shared_volumes_dir.clone().filter(|_| config.runtime != RuntimeKind::Process);
        let known = path.as_ref().and_then(|_| known_file.load().ok().flatten());
        Self { path, known: Mutex::new(known), known_file, threads: Arc::new(Semaphore::new(MAX_THREADS)) }
    }

    pub(crate) fn is_declared(&self) -> bool {
        self.path.is_some()
    }

    pub(crate) fn known(&self, cluster: &ClusterId) -> Option<String> {
        let known = self.known.lock();
        known.as_ref().filter(|known| known.cluster == *cluster).map(|known| known.id.clone())
    }

    pub(crate) fn remember(&self, cluster: &ClusterId, id: &str) {
        let directory = DirectoryIdentity { cluster: cluster.clone(), id: id.to_owned() };
        let mut known = self.known.lock();
        if known.as_ref() == Some(&directory) {
            return;
        }
        if let Err(error) = self.known_file.save(&directory) {
            tracing::warn!(
                path = %self.known_file.path().display(), %error,
                "the id of the shared directory cannot be saved: if Redis is lost, this worker does not know which \
                 directory is the right one; make the directory writable"
            );
        }
        *known = Some(directory);
    }

    pub(crate) async fn look(&self, cluster: &ClusterId) -> SharedDirectoryReport {
        let Some(path) = self.path.clone() else {
            return SharedDirectoryReport::Unusable("it is not declared".to_owned());
        };
        let cluster = cluster.clone();
        let look = self.blocking(LIMIT, move || Ok(report_of(&path, &cluster))).await;
        look.unwrap_or_else(|error| SharedDirectoryReport::Unusable(unusable(self.path.as_deref(), &error)))
    }

    /// Another worker may have been faster.
    pub(crate) async fn give_id(&self, cluster: &ClusterId) -> Result<(), String> {
        let Some(path) = self.path.clone() else { return Ok(()) };
        let identity = DirectoryIdentity { cluster: cluster.clone(), id: Uuid::new_v4().to_string() };
        let given = self.blocking(LIMIT, move || create_identity(&path, &identity)).await;
        given.map_err(|error| unusable(self.path.as_deref(), &error))
    }

    pub(crate) async fn provide(&self, request: &mut ContainerRequest) -> Result<(), FilesUnavailable> {
        let is_shared = |kind| kind == VolumeKind::Shared;
        if !request.container.volumes.iter().any(|volume| is_shared(volume.kind)) {
            return Ok(());
        }
        let (root, service) =
            (self.usable_root(request.identity.cluster.as_ref()).await?, service_of(request)?);
        for volume in request.container.volumes.iter_mut().filter(|volume| is_shared(volume.kind)) {
            let (source, app) = (volume.source.clone().unwrap_or_default(), volume.app.clone());
            let shared = model::spec::SharedVolume { source, app, space: None };
            let claim = VolumeClaim::of_shared(&service, shared);
            let claim = claim.ok_or_else(|| unavailable("its name is too long".to_owned()))?;
            let path = root.join(claim.name.as_str());
            let created = self
                .blocking(LIMIT, {
                    let path = path.clone();
                    move || create_volume(&path)
                })
                .await;
            created.map_err(|error| unavailable(format!("{} cannot be created: {error}", path.display())))?;
            let text = path.into_os_string().into_string();
            volume.source = Some(text.map_err(|_| unavailable("its path is not UTF-8".to_owned()))?);
        }
        Ok(())
    }

    async fn usable_root(&self, cluster: Option<&ClusterId>) -> Result<PathBuf, FilesUnavailable> {
        let (Some(path), Some(cluster)) = (&self.path, cluster) else {
            let why = "this node has no directory for shared volumes any more: start its worker with \
                       KUBELEET_SHARED_VOLUMES_DIR";
            return Err(unavailable(why.to_owned()));
        };
        match (self.look(cluster).await, self.known(cluster)) {
            (SharedDirectoryReport::Found(id), Some(known)) if id == known => Ok(path.clone()),
            (SharedDirectoryReport::Unusable(why), _) => Err(unavailable(why)),
            (SharedDirectoryReport::Found(_) | SharedDirectoryReport::WithoutId, _) => {
                let path = path.display();
                Err(unavailable(format!(
                    "{path} is not the directory that the cluster's nodes share: mount it there"
                )))
            }
        }
    }

    pub(crate) async fn volumes(&self, cluster: Option<&ClusterId>) -> Vec<EngineVolume> {
        if self.path.is_none() {
            return Vec::new();
        }
        let Ok(root) = self.usable_root(cluster).await else { return Vec::new() };
        let listed = self.blocking(REMOVE_LIMIT, {
            let root = root.clone();
            move || list(&root)
        });
        let names = listed.await.unwrap_or_default();
        let claims =
            names.into_iter().filter_map(|name| VolumeClaim::from_name(&VolumeName::new(name).ok()?));
        let of_claim = |claim: VolumeClaim| {
            let handle = root.join(claim.name.as_str()).to_string_lossy().into_owned();
            EngineVolume {
                handle,
                cluster: cluster.cloned(),
                owner: VolumeOwner::Replica(claim),
                space: None,
                epoch: None,
            }
        };
        claims.filter(|claim| claim.scope.is_shared()).map(of_claim).collect()
    }

    pub(crate) async fn remove(&self, name: &VolumeName, cluster: Option<&ClusterId>) -> bool {
        let Ok(root) = self.usable_root(cluster).await else { return false };
        let name = name.to_string();
        match self.blocking(REMOVE_LIMIT, move || remove(&root, &name)).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "a shared volume cannot be removed; it is tried again");
                false
            }
        }
    }
}

fn service_of(request: &ContainerRequest) -> Result<ServiceName, FilesUnavailable> {
    let service = request.identity.service.clone();
    service.ok_or_else(|| unavailable("only pods of a service have shared volumes".to_owned()))
}

fn unavailable(message: String) -> FilesUnavailable {
    FilesUnavailable { reason: "SharedVolumeUnavailable", message }
}

fn unusable(path: Option<&Path>, error: &io::Error) -> String {
    let path = path.unwrap_or(Path::new("")).display();
    format!("its shared directory {path} cannot be used: {error}; mount it, or make it readable and writable")
}

fn report_of(path: &Path, cluster: &ClusterId) -> SharedDirectoryReport {
    match read_identity(path) {
        Ok(Some(identity)) if identity.cluster == *cluster => SharedDirectoryReport::Found(identity.id),
        Ok(Some(identity)) => SharedDirectoryReport::Unusable(format!(
            "its shared directory {} belongs to another cluster, {}: give each cluster a directory of its own",
            path.display(),
            identity.cluster
        )),
        Ok(None) if path.is_dir() => SharedDirectoryReport::WithoutId,
        Ok(None) => {
            SharedDirectoryReport::Unusable(unusable(Some(path), &io::Error::other("it is no directory")))
        }
        Err(error) => SharedDirectoryReport::Unusable(unusable(Some(path), &error)),
    }
}

fn read_identity(directory: &Path) -> io::Result<Option<DirectoryIdentity>> {
    StateFile::new(directory.join(IDENTITY)).load()
}

fn create_identity(directory: &Path, identity: &DirectoryIdentity) -> io::Result<()> {
    StateFile::new(directory.join(IDENTITY)).create(&serde_json::to_vec(identity)?).map(drop)
}

fn create_volume(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(MODE).create(path) {
        // The umask has removed bits.
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(MODE)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            // A link could lead out of the directory.
            let is_directory = fs::symlink_metadata(path)?.is_dir();
            if is_directory { Ok(()) } else { Err(io::Error::other("it is no directory")) }
        }
        Err(error) => Err(error),
    }
}

fn list(root: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root)? {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        if name.starts_with(REMOVING) {
            // Another node may be deleting it too.
            let _ = fs::remove_dir_all(root.join(&name));
        } else if !name.starts_with('.') {
            names.push(name);
        }
    }
    Ok(names)
}

/// Renames first, so that no process finds a part of the volume.
fn remove(root: &Path, name: &str) -> io::Result<()> {
    let removing = root.join(format!("{REMOVING}{name}-{}", Uuid::new_v4()));
    let is_renamed = fs::rename(root.join(name), &removing).if_found()?.is_some();
    if is_renamed { fs::remove_dir_all(&removing) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use testkit::fixtures;

    use super::*;
    use engine::Identity;
    use engine::testing::identity;

    fn shared(root: &Path) -> SharedDirectory {
        let (data_dir, shared_volumes_dir) = (root.join("data"), Some(root.join("shared")));
        SharedDirectory::new(&Config { data_dir, shared_volumes_dir, ..fixtures::config(&[]) })
    }

    fn request(root: &Path) -> (SharedDirectory, ContainerRequest, ClusterId) {
        let service = Some(ServiceName::new("web").unwrap());
        let identity = Identity { service, ..identity("node", "pod", "a") };
        let cluster = identity.cluster.clone().unwrap();
        let json = r#"{"image":"x","volumes":[{"source":"up","target":"/up","kind":"shared"},"/cache"]}"#;
        let container = serde_json::from_str(json).unwrap();
        let request = ContainerRequest::new(identity, container);
        (shared(root), request, cluster)
    }

    #[tokio::test]
    async fn of_many_workers_one_gives_the_directory_its_id() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("shared")).unwrap();
        let cluster = ClusterId::random();
        let look = || async { shared(root.path()).look(&cluster).await };
        assert_eq!(look().await, SharedDirectoryReport::WithoutId);
        let all = (0..20).map(|_| {
            let (shared, cluster) = (shared(root.path()), cluster.clone());
            tokio::spawn(async move {
                shared.give_id(&cluster).await.unwrap();
                shared.look(&cluster).await
            })
        });
        let mut found = Vec::new();
        for worker in all.collect::<Vec<_>>() {
            found.push(worker.await.unwrap());
        }
        assert!(found.iter().all(|one| matches!(one, SharedDirectoryReport::Found(_)) && *one == found[0]));
        let left = fs::read_dir(root.path().join("shared")).unwrap().count();
        assert_eq!(left, 1, "only the identity file");
        let SharedDirectoryReport::Unusable(why) = shared(root.path()).look(&ClusterId::random()).await
        else {
            panic!("another cluster")
        };
        assert!(why.contains("belongs to another cluster"), "{why}");
    }

    #[tokio::test]
    async fn a_directory_that_is_not_that_of_the_cluster_gives_no_volume() {
        let root = tempfile::tempdir().unwrap();
        let (shared, request, cluster) = request(root.path());
        let refused = |expected: &'static str| {
            let (shared, mut request) = (&shared, request.clone());
            async move {
                let refused = shared.provide(&mut request).await.unwrap_err();
                assert!(refused.message.contains(expected), "{refused:?}");
            }
        };
        refused("cannot be used").await;
        let path = root.path().join("shared");
        fs::create_dir(&path).unwrap();
        refused("is not the directory that the cluster's nodes share").await;
        shared.give_id(&cluster).await.unwrap();
        refused("is not the directory that the cluster's nodes share").await;
        let SharedDirectoryReport::Found(id) = shared.look(&cluster).await else { panic!() };
        shared.remember(&cluster, "another");
        refused("is not the directory that the cluster's nodes share").await;
        shared.remember(&cluster, &id);
        let mut provided = request.clone();
        shared.provide(&mut provided).await.unwrap();
        let volume = path.join("web_up_shared");
        assert_eq!(provided.container.volumes[0].source.as_deref(), volume.to_str());
        assert_eq!(fs::metadata(&volume).unwrap().permissions().mode() & 0o777, 0o777);
        assert_eq!(provided.container.volumes[1], request.container.volumes[1]);
    }

    #[tokio::test]
    async fn a_removed_volume_is_gone_with_what_an_earlier_removal_has_left() {
        let root = tempfile::tempdir().unwrap();
        let (shared, mut request, cluster) = request(root.path());
        let path = root.path().join("shared");
        fs::create_dir_all(path.join(".removing-old-1/data")).unwrap();
        fs::create_dir(path.join("another program's")).unwrap();
        shared.give_id(&cluster).await.unwrap();
        let SharedDirectoryReport::Found(id) = shared.look(&cluster).await else { panic!() };
        shared.remember(&cluster, &id);
        shared.provide(&mut request).await.unwrap();
        fs::write(path.join("web_up_shared/file"), "x").unwrap();
        let volumes = shared.volumes(Some(&cluster)).await;
        let [EngineVolume { owner: VolumeOwner::Replica(claim), .. }] = &volumes[..] else {
            panic!("{volumes:?}")
        };
        assert_eq!(claim.name.as_str(), "web_up_shared");
        assert!(shared.remove(&claim.name, Some(&cluster)).await);
        assert!(shared.remove(&claim.name, Some(&cluster)).await, "again");
        let mut left: Vec<_> = fs::read_dir(&path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, [IDENTITY, "another program's"]);
    }
}
