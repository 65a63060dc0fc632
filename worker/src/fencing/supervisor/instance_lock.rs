//! A lock on `<node>.guard`: one supervisor per node of a machine. The file names the worker process, so that
//! the next supervisor takes over a worker that outlived its own.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use engine::process::ProcessIdentity;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal};

const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A worker promises ten seconds.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(10);
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct InstanceLock {
    file: File,
    path: PathBuf,
}

impl InstanceLock {
    pub(super) async fn acquire(path: &Path) -> io::Result<Option<Self>> {
        // A starting worker inherits the lock for a moment. If the supervisor was killed then, the lock is
        // free once that worker has replaced its process image or ended.
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match Self::try_acquire(path)? {
                None if Instant::now() < deadline => tokio::time::sleep(LOCK_POLL_INTERVAL).await,
                acquired => return Ok(acquired),
            }
        }
    }

    fn try_acquire(path: &Path) -> io::Result<Option<Self>> {
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        let file = File::options().create(true).truncate(false).read(true).write(true).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { file, path: path.to_owned() })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Without the file another supervisor could start beside this one, and the next one would not find its
    /// `worker`.
    pub(super) fn keep(&mut self, worker: Option<Pid>) {
        if self.path.exists() {
            return;
        }
        if let Ok(Some(again)) = Self::try_acquire(&self.path) {
            tracing::warn!(path = %self.path.display(), "the file was removed: it is written again");
            *self = again;
            if let Some(worker) = worker {
                self.record_worker(worker);
            }
        }
    }

    pub(super) fn leftover_worker(&mut self) -> Option<ProcessIdentity> {
        let mut text = Vec::new();
        self.file.rewind().and_then(|()| self.file.read_to_end(&mut text)).ok()?;
        serde_json::from_slice::<ProcessIdentity>(&text).ok().filter(ProcessIdentity::is_running)
    }

    pub(super) fn record_worker(&mut self, worker: Pid) {
        let recorded = (|| {
            let identity =
                ProcessIdentity::of(worker.as_raw_nonzero().get()).ok_or(io::ErrorKind::NotFound)?;
            self.file.set_len(0)?;
            self.file.rewind()?;
            self.file.write_all(&serde_json::to_vec(&identity)?)
        })();
        if let Err(error) = recorded {
            tracing::warn!(
                path = %self.path.display(), %error,
                "the id of the worker process could not be written: if this supervisor is killed, the next one \
                 does not find its worker"
            );
        }
    }
}

/// The pods go on.
pub(super) async fn end_leftover_worker(worker: &ProcessIdentity, lease_remaining: Duration) {
    tracing::warn!(
        process = worker.pid,
        "the supervisor of this worker was killed and the worker still runs: ending it to take over"
    );
    worker.signal(Signal::TERM);
    let timeout = TERMINATION_TIMEOUT.min(lease_remaining);
    if tokio::time::timeout(timeout, worker.exited()).await.is_err() {
        worker.signal(Signal::KILL);
        let _late = tokio::time::timeout(KILL_TIMEOUT, worker.exited()).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn one_supervisor_per_node_and_the_next_one_ends_the_leftover_worker() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/n.guard");
        let mut lock = InstanceLock::acquire(&path).await.unwrap().unwrap();
        assert!(InstanceLock::acquire(&path).await.unwrap().is_none(), "taken");
        assert!(lock.leftover_worker().is_none());
        let mut worker =
            Command::new("sh").args(["-c", "trap '' TERM; while :; do sleep 0.1; done"]).spawn().unwrap();
        lock.record_worker(Pid::from_child(&worker));
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
        lock.keep(Some(Pid::from_child(&worker)));
        assert!(
            InstanceLock::acquire(&path).await.unwrap().is_none(),
            "taken, although the file was removed"
        );
        drop(lock);

        let mut lock = InstanceLock::acquire(&path).await.unwrap().unwrap();
        let leftover = lock.leftover_worker().unwrap();
        assert_eq!(leftover.pid, i32::try_from(worker.id()).unwrap());
        end_leftover_worker(&leftover, Duration::from_millis(300)).await;
        assert!(worker.wait().unwrap().code().is_none(), "killed");
        assert!(lock.leftover_worker().is_none());
    }
}
