//! The worker's memory on disk, across its processes.
//!
//! A Redis that does not know the cluster was emptied, or is another one. A name held under another id is
//! another machine's; that id is valid for this boot only, so a copy of the machine's disk does not have it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use daemon::config::Config;
use daemon::state_file::{IfFound, StateFile};
use model::ids::{ClusterId, HolderId, NodeName};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::fencing::lease_file::{self, SavedLease};
use crate::fencing::other_lease::OtherLease;

pub trait IdentityStore: Send + Sync {
    fn load(&self) -> Option<ClusterId>;

    /// After a failure the next worker process joins the cluster that its Redis knows.
    fn save(&self, cluster: &ClusterId);

    /// Under this id the machine holds the node's name. At the first call since a boot it is drawn, and
    /// written.
    fn load_or_create_holder(&self) -> HolderId;

    /// Writes the file again if it was removed. Without it the next worker process is taken for another
    /// machine: it waits until the node has been silent for long enough to take its name over.
    fn keep_holder(&self, _holder: &HolderId) {}

    fn engine(&self) -> Option<String>;

    /// After a failure a worker whose engine does not answer waits before it registers.
    fn save_engine(&self, id: &str);

    /// For other processes of this machine.
    fn note_hold(&self, why: Option<&str>);

    /// The leases of workers that run, or ran since the last boot, on this machine.
    fn other_leases(&self) -> Vec<OtherLease>;
}

pub(crate) struct ClusterIdentity {
    cluster: Mutex<Option<ClusterId>>,
    holder: HolderId,
    engine: Mutex<Option<String>>,
    store: Option<Arc<dyn IdentityStore>>,
}

impl ClusterIdentity {
    pub(crate) fn load(store: Option<Arc<dyn IdentityStore>>) -> Self {
        let cluster = Mutex::new(store.as_ref().and_then(|store| store.load()));
        let holder = store.as_ref().map_or_else(HolderId::random, |store| store.load_or_create_holder());
        let engine = Mutex::new(store.as_ref().and_then(|store| store.engine()));
        Self { cluster, holder, engine, store }
    }

    pub(crate) fn cluster(&self) -> Option<ClusterId> {
        self.cluster.lock().clone()
    }

    pub(crate) fn holder(&self) -> &HolderId {
        &self.holder
    }

    pub(crate) fn store_and_holder(&self) -> Option<(Arc<dyn IdentityStore>, HolderId)> {
        Some((self.store.clone()?, self.holder.clone()))
    }

    pub(crate) fn engine(&self) -> Option<String> {
        self.engine.lock().clone()
    }

    pub(crate) fn note_engine(&self, id: &str) {
        let before = self.engine.lock().replace(id.to_owned());
        if let Some(store) = &self.store
            && before.as_deref() != Some(id)
        {
            store.save_engine(id);
        }
    }

    pub(crate) fn join(&self, cluster: &ClusterId) -> bool {
        if self.cluster.lock().as_ref() == Some(cluster) {
            return false;
        }
        if let Some(store) = &self.store {
            store.save(cluster);
        }
        *self.cluster.lock() = Some(cluster.clone());
        true
    }

    pub(crate) fn note_hold(&self, why: Option<&str>) {
        if let Some(store) = &self.store {
            store.note_hold(why);
        }
    }

    pub(crate) fn other_leases(&self) -> Vec<OtherLease> {
        self.store.as_ref().map(|store| store.other_leases()).unwrap_or_default()
    }
}

#[derive(Serialize, Deserialize)]
struct ClusterRecord {
    cluster: ClusterId,
}

#[derive(Serialize, Deserialize)]
struct HolderRecord {
    boot_id: String,
    holder: HolderId,
}

/// `<node>.hold` exists while the worker holds.
pub(crate) struct IdentityFiles {
    /// Best first: a directory that outlives a reboot, then the lease's.
    clusters: [StateFile; 2],
    engine: StateFile,
    holder: StateFile,
    hold: StateFile,
    config: Arc<Config>,
}

impl IdentityFiles {
    pub(crate) fn of(config: &Config) -> Self {
        let config = Arc::new(config.clone());
        let file = |directory: &Path, kind: &str| {
            StateFile::new(directory.join(format!("{}.{kind}", config.node))).creating_directory()
        };
        Self {
            clusters: [file(&config.data_dir, "cluster"), file(&config.state_dir, "cluster")],
            engine: file(&config.data_dir, "engine"),
            holder: file(&config.state_dir, "holder"),
            hold: file(&config.state_dir, "hold"),
            config,
        }
    }

    fn write_holder(&self, boot_id: String, holder: &HolderId) -> io::Result<()> {
        self.holder.save(&HolderRecord { boot_id, holder: holder.clone() })
    }

    pub(crate) fn hold(&self) -> Option<String> {
        std::fs::read_to_string(self.hold.path()).ok()
    }
}

impl IdentityStore for IdentityFiles {
    fn load(&self) -> Option<ClusterId> {
        self.clusters.iter().find_map(read)
    }

    fn save(&self, cluster: &ClusterId) {
        let record = ClusterRecord { cluster: cluster.clone() };
        let mut failures = Vec::new();
        for (index, file) in self.clusters.iter().enumerate() {
            match file.save(&record) {
                Ok(()) => {
                    // Both directories may be one.
                    let others = self.clusters[index + 1..].iter();
                    others.filter(|other| other.path() != file.path()).for_each(forget);
                    break;
                }
                Err(error) => failures.push(format!("{}: {error}", file.path().display())),
            }
        }
        // A file of a former cluster that cannot be written would be read first.
        if self.load().as_ref() != Some(cluster) {
            tracing::error!(
                "the id of the cluster cannot be written to disk ({}): if Redis is lost, the next worker process \
                 does not recognize its containers; make one of the directories writable, and remove an older \
                 `.cluster` file",
                failures.join("; ")
            );
        }
    }

    fn load_or_create_holder(&self) -> HolderId {
        let boot_id = lease_file::boot_id().unwrap_or_default();
        let saved = self.holder.load::<HolderRecord>().ok().flatten();
        if let Some(record) = saved.filter(|record| record.boot_id == boot_id && !boot_id.is_empty()) {
            return record.holder;
        }
        let holder = HolderId::random();
        if let Err(error) = self.write_holder(boot_id, &holder) {
            tracing::warn!(
                path = %self.holder.path().display(), %error,
                "the holder of this node's name cannot be written: when this worker is restarted, it waits \
                 until the node has been silent for some time; make the directory writable"
            );
        }
        holder
    }

    fn keep_holder(&self, holder: &HolderId) {
        if self.holder.path().exists() {
            return;
        }
        let path = self.holder.path().display();
        let written = lease_file::boot_id().and_then(|boot_id| self.write_holder(boot_id, holder));
        match written {
            Ok(()) => {
                tracing::warn!(%path, "the file was removed while this worker ran: it is written again")
            }
            Err(error) => tracing::debug!(%path, %error, "the holder of the name cannot be written again"),
        }
    }

    fn engine(&self) -> Option<String> {
        std::fs::read_to_string(self.engine.path()).ok()
    }

    fn save_engine(&self, id: &str) {
        if let Err(error) = self.engine.write(id.as_bytes()) {
            tracing::warn!(
                path = %self.engine.path().display(), %error,
                "the id of the container engine cannot be written: a worker that is started while the engine is \
                 down waits for it before it registers; make the directory writable"
            );
        }
    }

    fn note_hold(&self, why: Option<&str>) {
        let noted = match why {
            Some(why) => self.hold.write(why.as_bytes()),
            None => std::fs::remove_file(self.hold.path()).if_found().map(drop),
        };
        if let Err(error) = noted {
            tracing::warn!(path = %self.hold.path().display(), %error, "the hold file could not be changed");
        }
    }

    fn other_leases(&self) -> Vec<OtherLease> {
        let (Ok(boot_id), Ok(entries)) = (lease_file::boot_id(), std::fs::read_dir(&self.config.state_dir))
        else {
            return Vec::new();
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let nodes = names.filter_map(|name| NodeName::new(name.strip_suffix(".lease")?).ok());
        let others = nodes.filter(|node| *node != self.config.node);
        others.filter_map(|node| other_lease(&self.config, node, &boot_id)).collect()
    }
}

pub fn cluster_of(config: &Config) -> Option<ClusterId> {
    IdentityFiles::of(config).load()
}

fn other_lease(config: &Config, node: NodeName, boot_id: &str) -> Option<OtherLease> {
    let config = Config { node: node.clone(), ..config.clone() };
    match lease_file::read(&lease_file::path(&config), boot_id) {
        SavedLease::Lease(lease) => {
            Some(OtherLease { node, cluster: cluster_of(&config), deadline: lease.deadline })
        }
        SavedLease::Unusable(_) => None,
    }
}

/// Of a cluster that this worker has left.
fn forget(file: &StateFile) {
    if let Err(error) = std::fs::remove_file(file.path()).if_found() {
        tracing::debug!(path = %file.path().display(), %error, "an old id of a cluster cannot be removed");
    }
}

fn read(file: &StateFile) -> Option<ClusterId> {
    let record = file.load::<ClusterRecord>().unwrap_or_else(|why| {
        tracing::error!(
            path = %file.path().display(), %why,
            "the id of the cluster cannot be read: the worker joins the cluster that its Redis knows"
        );
        None
    });
    record.map(|record| record.cluster)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use testkit::fixtures;

    use super::*;

    #[test]
    fn the_holder_stays_the_same_until_the_next_boot_and_garbage_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let config = Config { state_dir: directory.path().join("state"), ..fixtures::config(&[]) };
        let holder = || IdentityFiles::of(&config).load_or_create_holder();
        let first = holder();
        assert_eq!(holder(), first, "the next process has it");
        let file = IdentityFiles::of(&config).holder;
        let of_another_boot = HolderRecord { boot_id: "another".to_owned(), holder: first.clone() };
        for text in [serde_json::to_vec(&of_another_boot).unwrap(), b"{".to_vec()] {
            let before = holder();
            file.write(&text).unwrap();
            assert_ne!(holder(), before);
            assert_eq!(holder(), holder(), "the new one is saved");
        }
        let kept = holder();
        std::fs::remove_dir_all(&config.state_dir).unwrap();
        IdentityFiles::of(&config).keep_holder(&kept);
        assert_eq!(holder(), kept, "a wiped directory is written again");
        let unwritable = Config { state_dir: "/proc/nowhere".into(), ..config.clone() };
        let unsaved = || IdentityFiles::of(&unwritable).load_or_create_holder();
        assert_ne!(unsaved(), unsaved());
    }

    #[test]
    fn the_id_is_kept_where_a_directory_can_be_written_and_garbage_is_no_id() {
        let directory = tempfile::tempdir().unwrap();
        let config = Config {
            data_dir: "/proc/nowhere".into(),
            state_dir: directory.path().join("state"),
            ..fixtures::config(&[])
        };
        let files = IdentityFiles::of(&config);
        assert_eq!(files.load(), None);
        let cluster = ClusterId::random();
        files.save(&cluster);
        assert_eq!(files.load(), Some(cluster));
        files.clusters[1].write(b"{").unwrap();
        assert_eq!(files.load(), None);
        files.save(&ClusterId::random());
        let again = IdentityFiles::of(&Config { data_dir: directory.path().join("data"), ..config.clone() });
        let newer = ClusterId::random();
        again.save(&newer);
        assert_eq!(files.load(), None, "the copy of a former cluster is removed");
        assert_eq!(again.load(), Some(newer));
        files.note_hold(Some("why"));
        assert_eq!(files.hold().as_deref(), Some("why"));
        files.note_hold(None);
        files.note_hold(None);
        assert_eq!(files.hold(), None);
    }
}
