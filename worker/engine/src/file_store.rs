//! Files for this node's containers: a directory in memory per container, for the worker's user only. All
//! calls block their thread, for microseconds.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use daemon::config::Config;
use daemon::state_file::IfFound;
use model::ids::{AssignmentId, ClusterId, ContainerName, NodeName, PodId};
use model::value::ValueBytes;
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, FsWord, fallocate, statfs};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::digest::{hex, short_hash};
use crate::{Container, Identity};

const SHARED_MEMORY: &str = "/dev/shm";
/// As in statfs(2): tmpfs and ramfs.
const IN_MEMORY: [FsWord; 2] = [0x0102_1994, 0x8584_58f6];

pub struct NewFile {
    pub name: String,
    pub content: ValueBytes,
    /// `None` for the worker's.
    pub uid: Option<u32>,
    /// `None` for the worker's.
    pub gid: Option<u32>,
    pub mode: u32,
}

pub struct FileStore {
    state_dir: PathBuf,
    node: NodeName,
    in_use: InUse,
}

type InUse = Arc<Mutex<HashSet<String>>>;

/// Keeps a container's directory while the engine does not list the container yet.
pub struct DirectoryGuard {
    name: String,
    in_use: InUse,
}

impl Drop for DirectoryGuard {
    fn drop(&mut self) {
        self.in_use.lock().remove(&self.name);
    }
}

impl FileStore {
    pub fn new(config: &Config) -> Self {
        Self { state_dir: config.state_dir.clone(), node: config.node.clone(), in_use: InUse::default() }
    }

    pub fn guard(&self, identity: &Identity) -> DirectoryGuard {
        let name = directory_of(identity);
        self.in_use.lock().insert(name.clone());
        DirectoryGuard { name, in_use: self.in_use.clone() }
    }

    /// # Errors
    /// A sentence without the content.
    pub fn write(&self, identity: &Identity, files: &[NewFile]) -> Result<Vec<PathBuf>, String> {
        let directory = self.root()?.join(directory_of(identity));
        create_private(self.base()?, &directory)?;
        files.iter().map(|file| write_file(&directory, file)).collect()
    }

    pub fn has_all(&self, identity: &Identity, names: &[String]) -> bool {
        let Ok(root) = self.root() else { return false };
        let directory = root.join(directory_of(identity));
        names.iter().all(|name| directory.join(name).is_file())
    }

    /// A mount follows the inode, so the content is replaced. Returns true if the container must be notified,
    /// also after a worker died before [`FileStore::note_told`].
    pub fn replace(&self, identity: &Identity, file: &NewFile) -> Result<bool, String> {
        let directory = self.root()?.join(directory_of(identity));
        let path = directory.join(&file.name);
        let mark = directory.join(mark_of(&file.name));
        let failed = |error: std::io::Error| format!("the file {} cannot be replaced: {error}", file.name);
        match fs::read(&path).if_found().map_err(failed)? {
            Some(current) if current == file.content.expose() => return Ok(mark.exists()),
            Some(_) => {}
            None => return Ok(false),
        }
        fs::write(&mark, []).and_then(|()| overwrite(&path, file)).map_err(failed)?;
        Ok(true)
    }

    pub fn note_told(&self, identity: &Identity, name: &str) {
        let Ok(root) = self.root() else { return };
        let _missing = fs::remove_file(root.join(directory_of(identity)).join(mark_of(name)));
    }

    /// Omits containers that are starting.
    pub fn directories(&self, cluster: Option<&ClusterId>) -> Vec<String> {
        let in_use = self.in_use.lock().clone();
        let Ok(entries) = self.root().and_then(|root| fs::read_dir(root).map_err(|error| error.to_string()))
        else {
            return Vec::new();
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let prefix = cluster_prefix(cluster);
        names.filter(|name| name.starts_with(&prefix) && !in_use.contains(name)).collect()
    }

    /// `containers` must be listed after `directories`.
    pub fn remove_leftovers(&self, directories: Vec<String>, containers: &[Container]) {
        if directories.is_empty() {
            return;
        }
        let kept: HashSet<String> = containers.iter().map(directory_name).collect();
        for name in directories.into_iter().filter(|name| !kept.contains(name)) {
            self.remove_directory(&name);
        }
    }

    pub fn remove(&self, container: &Container) {
        self.remove_directory(&directory_name(container));
    }

    fn remove_directory(&self, name: &str) {
        let Ok(root) = self.root() else { return };
        if let Err(error) = fs::remove_dir_all(root.join(name)).if_found() {
            tracing::warn!(%error, directory = name, "the files of a removed container cannot be removed");
        }
    }

    fn root(&self) -> Result<PathBuf, String> {
        let base = self.base()?;
        if base == self.state_dir {
            return Ok(base.join("files").join(self.node.as_str()));
        }
        let user = format!("kubeleet-{}", rustix::process::geteuid().as_raw());
        let place = hex(&Sha256::digest(self.state_dir.as_os_str().as_encoded_bytes())[..6]);
        Ok(base.join(user).join(place).join(self.node.as_str()))
    }

    fn base(&self) -> Result<&Path, String> {
        let shared = Path::new(SHARED_MEMORY);
        match [self.state_dir.as_path(), shared].into_iter().find(|path| is_in_memory(path)) {
            Some(base) => Ok(base),
            None => Err(format!(
                "secrets and configs are kept in memory only, and neither KUBELEET_STATE_DIR ({}) nor \
                 {SHARED_MEMORY} is a file system in memory: set KUBELEET_STATE_DIR to a directory on a tmpfs",
                self.state_dir.display()
            )),
        }
    }
}

/// Each cluster removes only its own.
fn directory_of(identity: &Identity) -> String {
    let Identity { cluster, pod, assignment, container, .. } = identity;
    cluster_prefix(cluster.as_ref()) + &hash(pod, assignment, container.as_ref())
}

fn directory_name(container: &Container) -> String {
    let Container { cluster, pod, assignment, name, .. } = container;
    cluster_prefix(cluster.as_ref()) + &hash(pod, assignment, name.as_ref())
}

fn cluster_prefix(cluster: Option<&ClusterId>) -> String {
    let digest = Sha256::digest(cluster.map_or("", |cluster| cluster.as_str()));
    format!("{}-", hex(&digest[..4]))
}

fn hash(pod: &PodId, assignment: &AssignmentId, container: Option<&ContainerName>) -> String {
    short_hash(&[pod.as_str(), assignment.as_str(), container.map_or("", |name| name.as_str())], 10)
}

fn is_in_memory(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| IN_MEMORY.contains(&found.f_type))
}

/// Refuses a directory that another user could have made: `/dev/shm` is open to all.
fn create_private(base: &Path, directory: &Path) -> Result<(), String> {
    let below = directory.strip_prefix(base).unwrap_or(directory);
    let mut path = base.to_owned();
    for part in below.components() {
        path.push(part);
        let failed = |error: std::io::Error| format!("{} cannot be created: {error}", path.display());
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        let found = fs::symlink_metadata(&path).map_err(failed)?;
        let is_own = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
        if !is_own || found.mode() & 0o077 != 0 {
            return Err(format!(
                "{} is not a directory that only the worker's user can enter: remove it",
                path.display()
            ));
        }
    }
    Ok(())
}

fn mark_of(name: &str) -> String {
    format!("{name}.changed")
}

fn overwrite(path: &Path, file: &NewFile) -> std::io::Result<()> {
    // A worker that is not root needs this.
    fs::set_permissions(path, Permissions::from_mode(file.mode | 0o200))?;
    let written = OpenOptions::new().write(true).open(path);
    let written = written.and_then(|target| write_over(&target, file.content.expose()));
    fs::set_permissions(path, Permissions::from_mode(file.mode))?;
    written
}

/// Without reserved space the container would keep half a file.
fn write_over(target: &File, content: &[u8]) -> std::io::Result<()> {
    let length = content.len() as u64;
    if length > 0 {
        match fallocate(target, FallocateFlags::KEEP_SIZE, 0, length) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
    }
    target.write_all_at(content, 0)?;
    target.set_len(length)
}

/// Under another name first: a container that has mounted the old file keeps it.
fn write_file(directory: &Path, file: &NewFile) -> Result<PathBuf, String> {
    let path = directory.join(&file.name);
    let new = directory.join(format!("{}.new", file.name));
    let write = || -> std::io::Result<()> {
        fs::remove_file(&new).if_found()?;
        let mut target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        target.write_all(file.content.expose())?;
        if file.uid.is_some() || file.gid.is_some() {
            chown(&new, file.uid, file.gid)?;
        }
        fs::set_permissions(&new, Permissions::from_mode(file.mode))?;
        fs::rename(&new, &path)
    };
    match write() {
        Ok(()) => Ok(path),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(format!(
            "the file {} cannot be given to the user {} or the group {}: the worker has to be root for that",
            file.name,
            file.uid.map_or_else(|| "(unchanged)".to_owned(), |uid| uid.to_string()),
            file.gid.map_or_else(|| "(unchanged)".to_owned(), |gid| gid.to_string()),
        )),
        Err(error) => Err(format!("the file {} cannot be written: {error}", file.name)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::ContainerState;
    use crate::testing::identity;

    fn store(folder: &Path) -> FileStore {
        FileStore {
            state_dir: folder.to_owned(),
            node: NodeName::new("w1").unwrap(),
            in_use: InUse::default(),
        }
    }

    fn file(name: &str, content: &str, mode: u32) -> NewFile {
        let content = ValueBytes::new(content.as_bytes().to_vec());
        NewFile { name: name.to_owned(), content, uid: None, gid: None, mode }
    }

    fn remove_root(store: &FileStore) {
        fs::remove_dir_all(store.root().unwrap().parent().unwrap()).unwrap();
    }

    #[test]
    fn files_are_in_memory_and_only_the_workers_user_can_enter_their_directory() {
        let folder = tempfile::tempdir().unwrap();
        let (store, one) = (store(folder.path()), identity("w1", "pod", "a"));
        let paths = store.write(&one, &[file("0-db", "hunter2", 0o440)]).unwrap();
        assert_eq!(fs::read_to_string(&paths[0]).unwrap(), "hunter2");
        assert_eq!(paths[0].metadata().unwrap().mode() & 0o777, 0o440);
        assert_eq!(paths[0].parent().unwrap().metadata().unwrap().mode() & 0o777, 0o700);
        assert!(is_in_memory(&paths[0]));
        store.write(&one, &[file("0-db", "changed", 0o400)]).unwrap();
        assert_eq!(fs::read_to_string(&paths[0]).unwrap(), "changed");
        assert!(store.has_all(&one, &["0-db".to_owned()]) && !store.has_all(&one, &["1-x".to_owned()]));
        remove_root(&store);
    }

    #[test]
    fn a_mounted_file_is_replaced_in_place_and_its_container_told_at_least_once() {
        let folder = tempfile::tempdir().unwrap();
        let (store, one) = (store(folder.path()), identity("w1", "pod", "a"));
        assert!(!store.replace(&one, &file("0-db", "first", 0o400)).unwrap(), "it was never written");
        let paths = store.write(&one, &[file("0-db", "first", 0o400)]).unwrap();
        let inode = paths[0].metadata().unwrap().ino();
        assert!(!store.replace(&one, &file("0-db", "first", 0o400)).unwrap());
        for _ in 0..2 {
            assert!(store.replace(&one, &file("0-db", "second", 0o400)).unwrap(), "it was not told yet");
        }
        store.note_told(&one, "0-db");
        assert!(!store.replace(&one, &file("0-db", "second", 0o400)).unwrap());
        let found = paths[0].metadata().unwrap();
        assert_eq!((found.ino(), found.mode() & 0o777), (inode, 0o400));
        assert_eq!(fs::read_to_string(&paths[0]).unwrap(), "second");
        remove_root(&store);
    }

    #[test]
    fn without_room_for_the_new_content_a_container_keeps_what_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k", "none"])
            .arg(folder.path())
            .status();
        if !mounted.is_ok_and(|status| status.success()) {
            return testkit::require::skipped("netns", "only root may mount a file system");
        }
        let (path, filler) = (folder.path().join("secret"), folder.path().join("filler"));
        fs::write(&path, "first").unwrap();
        let _full = fs::write(&filler, [0; 128 << 10]);
        let longer = "x".repeat(16 << 10);
        let refused = overwrite(&path, &file("secret", &longer, 0o400));
        let kept = fs::read_to_string(&path).unwrap();
        fs::remove_file(&filler).unwrap();
        let written = overwrite(&path, &file("secret", &longer, 0o400));
        let replaced = fs::read_to_string(&path).unwrap();
        overwrite(&path, &file("secret", "", 0o400)).unwrap();
        let emptied = fs::read_to_string(&path).unwrap();
        std::process::Command::new("umount").arg("-l").arg(folder.path()).status().unwrap();
        assert!(refused.is_err() && written.is_ok(), "{refused:?} {written:?}");
        assert_eq!((kept.as_str(), replaced == longer, emptied.as_str()), ("first", true, ""));
    }

    #[test]
    fn what_no_container_has_is_removed_unless_its_start_is_under_way() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let [lives, starts, left] = ["1", "2", "3"].map(|pod| identity("w1", pod, "a"));
        let other = Identity { cluster: Some(ClusterId::new("other").unwrap()), ..left.clone() };
        let name = [file("0-db", "x", 0o444)];
        for one in [&lives, &starts, &left, &other] {
            store.write(one, &name).unwrap();
        }
        let cluster = lives.cluster.as_ref();
        let guard = store.guard(&starts);
        let container = Container::new("h".into(), &lives, ContainerState::Running);
        store.remove_leftovers(store.directories(cluster), std::slice::from_ref(&container));
        let has = |one: &Identity| store.has_all(one, &["0-db".to_owned()]);
        assert_eq!([&lives, &starts, &left, &other].map(has), [true, true, false, true]);
        drop(guard);
        store.remove(&container);
        store.remove_leftovers(store.directories(cluster), &[]);
        assert_eq!([&lives, &starts, &other].map(has), [false, false, true]);
        remove_root(&store);
    }
}
