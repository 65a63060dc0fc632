//! One guard for each node of a machine, and what it does about a worker that outlived the guard before.
//!
//! The guard holds a lock on `<node>.guard` for as long as it lives; in the file stands its worker process.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal};

use crate::runtime::process::Who;

/// How long the place is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long an orphan may take to end; it promises ten seconds.
const FAREWELL: Duration = Duration::from_secs(10);
/// How long the kernel may take to end a killed process.
const KILL: Duration = Duration::from_secs(5);

/// This guard's place. Given back when the process ends.
pub(super) struct Place {
    file: File,
    path: PathBuf,
}

impl Place {
    /// Takes it; none when another guard has it and keeps it.
    pub(super) async fn take(path: &Path) -> io::Result<Option<Self>> {
        // A guard that was killed while it started its worker is gone only when that one is.
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Self::try_take(path)? {
                None if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(20)).await,
                taken => return Ok(taken),
            }
        }
    }

    fn try_take(path: &Path) -> io::Result<Option<Self>> {
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        let file = File::options().create(true).truncate(false).read(true).write(true).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { file, path: path.to_owned() })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The worker of the guard before, if it still runs.
    pub(super) fn orphan(&mut self) -> Option<Who> {
        let mut text = Vec::new();
        self.file.rewind().and_then(|()| self.file.read_to_end(&mut text)).ok()?;
        serde_json::from_slice::<Who>(&text).ok().filter(Who::lives)
    }

    /// Writes down the worker of this guard, for the next one.
    pub(super) fn note(&mut self, worker: Pid) {
        let noted = (|| {
            let who = Who::of(worker.as_raw_nonzero().get()).ok_or(io::ErrorKind::NotFound)?;
            self.file.set_len(0)?;
            self.file.rewind()?;
            self.file.write_all(&serde_json::to_vec(&who)?)
        })();
        if let Err(error) = noted {
            tracing::warn!(path = %self.path.display(), %error, "the worker process could not be noted for the next guard");
        }
    }
}

/// Asks the worker of a guard that was killed to end, and makes it end when it does not, or once `until_out`, the time
/// its lease is good for, is over. Its pods run on.
pub(super) async fn end_orphan(who: &Who, until_out: Duration) {
    tracing::warn!(
        process = who.pid,
        "the worker of a guard that was killed still runs: taking over from it"
    );
    who.signal(Signal::TERM);
    if tokio::time::timeout(FAREWELL.min(until_out), who.gone()).await.is_err() {
        who.signal(Signal::KILL);
        let _late = tokio::time::timeout(KILL, who.gone()).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn one_guard_a_node_and_the_next_one_ends_the_orphan() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/n.guard");
        let mut place = Place::take(&path).await.unwrap().unwrap();
        assert!(Place::take(&path).await.unwrap().is_none(), "taken");
        assert!(place.orphan().is_none());
        // It does not end when it is asked to.
        let mut worker =
            Command::new("sh").args(["-c", "trap '' TERM; while :; do sleep 0.1; done"]).spawn().unwrap();
        place.note(Pid::from_child(&worker));
        drop(place);

        let mut place = Place::take(&path).await.unwrap().unwrap();
        let orphan = place.orphan().unwrap();
        assert_eq!(orphan.pid, i32::try_from(worker.id()).unwrap());
        end_orphan(&orphan, Duration::from_millis(300)).await;
        assert!(worker.wait().unwrap().code().is_none(), "killed");
        assert!(place.orphan().is_none());
    }
}
