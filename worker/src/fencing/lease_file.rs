//! The lease on disk, for the next worker process and for the supervisor.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use daemon::clock::BootInstant;
use daemon::config::Config;
use daemon::state_file::{IfFound, StateFile};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use store::RedisProcess;
use tokio::task::JoinHandle;

use crate::support::change_log::ChangeLog;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SavedLease {
    Lease(LeaseGrant),
    /// Missing, of an earlier boot, or unreadable, with the reason.
    Unusable(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseGrant {
    pub deadline: BootInstant,
    pub granted_by: RedisProcess,
}

pub trait LeaseStore: Send + Sync {
    fn load(&self) -> SavedLease;

    /// Possibly late or not at all. The saved lease is never later than the last given one.
    fn save(&self, lease: &LeaseGrant);
}

#[derive(Serialize, Deserialize)]
struct LeaseRecord {
    boot_id: String,
    deadline_millis: u64,
    granted_by: String,
}

pub(crate) struct LeaseFile {
    path: PathBuf,
    boot_id: String,
    write_in_flight: Mutex<Option<JoinHandle<()>>>,
    log: Arc<ChangeLog>,
}

impl LeaseFile {
    pub(crate) fn new(path: PathBuf, boot_id: String) -> Self {
        let log = Arc::new(ChangeLog::new(format!("writing the lease to {}", path.display())));
        Self { path, boot_id, write_in_flight: Mutex::new(None), log }
    }

    pub(crate) fn check(&self) -> std::io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(directory)?;
        let probe = self.path.with_extension("lease.probe");
        std::fs::write(&probe, b"")?;
        std::fs::remove_file(&probe)
    }
}

impl LeaseStore for LeaseFile {
    fn load(&self) -> SavedLease {
        read(&self.path, &self.boot_id)
    }

    /// A slow disk never delays a heartbeat.
    fn save(&self, lease: &LeaseGrant) {
        let mut write_in_flight = self.write_in_flight.lock();
        if write_in_flight.as_ref().is_some_and(|handle| !handle.is_finished()) {
            return;
        }
        // A crash of the machine may lose the write, but then the boot id changes too.
        let file = StateFile::new(&self.path).until_reboot();
        let (boot_id, log) = (self.boot_id.clone(), self.log.clone());
        let record = LeaseRecord {
            boot_id,
            deadline_millis: lease.deadline.millis,
            granted_by: lease.granted_by.0.clone(),
        };
        *write_in_flight = Some(tokio::task::spawn_blocking(move || match file.save(&record) {
            Ok(()) => log.succeeded(),
            Err(error) => log.failed(&error),
        }));
    }
}

pub(crate) fn path(config: &Config) -> PathBuf {
    config.state_dir.join(format!("{}.lease", config.node))
}

/// The clock restarts at a boot.
pub(crate) fn read(path: &Path, boot_id: &str) -> SavedLease {
    let unusable = |why: String| SavedLease::Unusable(format!("{}: {why}", path.display()));
    let text = match std::fs::read(path).if_found() {
        Ok(Some(text)) => text,
        Ok(None) => return unusable("no such file".to_owned()),
        Err(error) => return unusable(error.to_string()),
    };
    match serde_json::from_slice::<LeaseRecord>(&text) {
        Ok(lease) if lease.boot_id == boot_id => SavedLease::Lease(LeaseGrant {
            deadline: BootInstant { millis: lease.deadline_millis },
            granted_by: RedisProcess(lease.granted_by),
        }),
        Ok(_) => unusable("written before the last reboot".to_owned()),
        Err(error) => unusable(format!("cannot be read: {error}")),
    }
}

pub(crate) fn boot_id() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_written_is_an_error() {
        let error = LeaseFile::new("/proc/nowhere/n.lease".into(), "boot".into()).check().unwrap_err();
        assert!(!error.to_string().is_empty());
    }
}
