//! This worker's lease: until when it may count on nobody else running its pods.
//!
//! It is renewed by each heartbeat that was answered, and reaches `fence_after` beyond the moment *before* that
//! heartbeat was sent. It lies in memory for the fence, and in a file for the worker that comes after a crash. The file
//! may be older than memory, never newer: a late write makes the next worker stop more, not less.
//!
//! A lease that is out is renewed only after the fence has ended what ran under it: a failover may have undone that this
//! worker was given up, and what it ran may run elsewhere all the same.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::clock::BootInstant;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use crate::trouble::Trouble;

/// How a lease stands at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// There never was one, or it was given up.
    None,
    /// Good for so long.
    Good(Duration),
    /// It ran out at that moment.
    Out(BootInstant),
}

/// What a worker that starts finds of the one before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A lease of this boot, with its deadline.
    Deadline(BootInstant),
    /// None of this boot, or none that can be read; in words.
    Nothing(String),
}

#[derive(Serialize, Deserialize)]
struct LeaseFile {
    boot_id: String,
    deadline_millis: u64,
}

/// Where a lease outlives its process.
pub trait Keeper: Send + Sync {
    /// What the worker before left.
    fn found(&self) -> Found;

    /// Keeps this deadline: at once or a little later, and perhaps not, but never a later one than this.
    fn keep(&self, deadline: BootInstant);
}

/// The lease of one worker process.
pub(crate) struct Lease {
    /// Milliseconds on the boot clock; 0 when there is none.
    deadline: AtomicU64,
    /// The deadline of the lease under which nothing runs any more: the fence has ended it.
    fenced: AtomicU64,
    /// How many containers are being started under it right now.
    starts: AtomicUsize,
    keeper: Option<Arc<dyn Keeper>>,
}

/// See [`Lease::start`].
pub(crate) struct Start<'a>(&'a Lease);

impl Drop for Start<'_> {
    fn drop(&mut self) {
        self.0.starts.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A lease in a file.
pub(crate) struct LeasePath {
    path: PathBuf,
    boot_id: String,
    writing: Mutex<Option<JoinHandle<()>>>,
    trouble: Arc<Trouble>,
}

impl Lease {
    /// A lease kept in memory, and by this keeper where there is one.
    pub(crate) fn new(keeper: Option<Arc<dyn Keeper>>) -> Self {
        Self { deadline: AtomicU64::new(0), fenced: AtomicU64::new(0), starts: AtomicUsize::new(0), keeper }
    }

    /// What the worker before left in the file.
    pub(crate) fn found(&self) -> Found {
        match &self.keeper {
            Some(keeper) => keeper.found(),
            None => Found::Nothing("this worker keeps no lease file".to_owned()),
        }
    }

    /// How it stands.
    pub(crate) fn standing(&self, now: BootInstant) -> Standing {
        let deadline = BootInstant { millis: self.deadline.load(Ordering::Acquire) };
        match deadline.millis {
            0 => Standing::None,
            _ if now < deadline => Standing::Good(deadline.since(now)),
            _ => Standing::Out(deadline),
        }
    }

    /// Whether it is good.
    pub(crate) fn is_good(&self, now: BootInstant) -> bool {
        matches!(self.standing(now), Standing::Good(_))
    }

    /// Takes over the lease of the worker before.
    pub(crate) fn take_over(&self, deadline: BootInstant) {
        self.deadline.fetch_max(deadline.millis, Ordering::AcqRel);
    }

    /// The right to start a container, if the lease is good now. The engine may take longer than the lease lasts:
    /// while this is held a lease that is out stays so, for the fence may not have seen that container yet.
    pub(crate) fn start(&self, now: BootInstant) -> Option<Start<'_>> {
        self.starts.fetch_add(1, Ordering::AcqRel);
        let start = Start(self);
        self.is_good(now).then_some(start)
    }

    /// The fence has ended all that must not run without it. False while a start is under way: then it may not have seen
    /// all.
    pub(crate) fn fenced(&self, deadline: BootInstant) -> bool {
        let all_is_seen = self.starts.load(Ordering::Acquire) == 0;
        if all_is_seen {
            self.fenced.store(deadline.millis, Ordering::Release);
        }
        all_is_seen
    }

    /// It is good until `deadline`, if it was not good for longer already, and unless it is out and the fence has not
    /// done its work.
    pub(crate) fn renew(&self, now: BootInstant, deadline: BootInstant) {
        if let Standing::Out(out) = self.standing(now)
            && self.fenced.load(Ordering::Acquire) != out.millis
        {
            return;
        }
        let before = self.deadline.fetch_max(deadline.millis, Ordering::AcqRel);
        if let Some(keeper) = &self.keeper
            && before < deadline.millis
        {
            keeper.keep(deadline);
        }
    }

    /// Nothing runs that it could be for.
    pub(crate) fn give_up(&self) {
        self.deadline.store(0, Ordering::Release);
    }
}

impl LeasePath {
    /// Makes its directory, and makes sure that it can be written.
    pub(crate) fn new(path: PathBuf, boot_id: String) -> std::io::Result<Self> {
        let directory = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(directory)?;
        let probe = path.with_extension("lease.probe");
        std::fs::write(&probe, b"")?;
        std::fs::remove_file(&probe)?;
        let trouble = Arc::new(Trouble::of(format!("writing the lease to {}", path.display())));
        Ok(Self { path, boot_id, writing: Mutex::new(None), trouble })
    }
}

impl Keeper for LeasePath {
    fn found(&self) -> Found {
        find(&self.path, &self.boot_id)
    }

    /// Writes on another thread, so that a slow disk never delays a heartbeat; while one write is under way the next
    /// is left out.
    fn keep(&self, deadline: BootInstant) {
        let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if writing.as_ref().is_some_and(|handle| !handle.is_finished()) {
            return;
        }
        let (path, boot_id, trouble) = (self.path.clone(), self.boot_id.clone(), self.trouble.clone());
        *writing = Some(tokio::task::spawn_blocking(move || {
            match write(&path, &LeaseFile { boot_id, deadline_millis: deadline.millis }) {
                Ok(()) => trouble.worked(),
                Err(error) => trouble.failed(&error),
            }
        }));
    }
}

/// What a lease file says.
pub(crate) fn find(path: &Path, boot_id: &str) -> Found {
    let nothing = |why: String| Found::Nothing(format!("{}: {why}", path.display()));
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return nothing("no such file".to_owned()),
        Err(error) => return nothing(error.to_string()),
    };
    match serde_json::from_slice::<LeaseFile>(&text) {
        Ok(file) if file.boot_id == boot_id => Found::Deadline(BootInstant { millis: file.deadline_millis }),
        Ok(_) => nothing("of a boot before this one".to_owned()),
        Err(error) => nothing(format!("can not be read: {error}")),
    }
}

/// All or nothing: a reader sees the old file or the new one. A crash of the machine may lose it, and is another boot.
fn write(path: &Path, lease: &LeaseFile) -> std::io::Result<()> {
    let beside = path.with_extension("lease.tmp");
    let mut file = std::fs::File::create(&beside)?;
    file.write_all(&serde_json::to_vec(lease)?)?;
    drop(file);
    std::fs::rename(&beside, path)
}

/// Names this boot of the machine.
pub(crate) fn boot_id() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn at(millis: u64) -> BootInstant {
        BootInstant { millis }
    }

    fn in_file(path: PathBuf, boot_id: &str) -> Lease {
        Lease::new(Some(Arc::new(LeasePath::new(path, boot_id.to_owned()).unwrap())))
    }

    #[test]
    fn a_lease_is_good_until_its_deadline_and_never_gets_shorter() {
        let lease = Lease::new(None);
        assert_eq!(lease.standing(at(5)), Standing::None);
        lease.renew(at(5), at(100));
        lease.renew(at(5), at(50));
        assert_eq!(lease.standing(at(99)), Standing::Good(Duration::from_millis(1)));
        assert_eq!(lease.standing(at(100)), Standing::Out(at(100)));
        lease.give_up();
        assert_eq!(lease.standing(at(100)), Standing::None);
    }

    #[test]
    fn a_lease_that_is_out_is_renewed_once_the_fence_has_done_its_work() {
        let lease = Lease::new(None);
        lease.renew(at(5), at(100));
        lease.renew(at(100), at(200));
        assert_eq!(lease.standing(at(100)), Standing::Out(at(100)));
        assert!(lease.fenced(at(100)));
        lease.renew(at(100), at(200));
        assert_eq!(lease.standing(at(100)), Standing::Good(Duration::from_millis(100)));
        lease.renew(at(200), at(300));
        assert_eq!(lease.standing(at(200)), Standing::Out(at(200)), "each time anew");
    }

    #[test]
    fn a_start_that_outlasts_the_lease_has_to_end_before_it_is_renewed() {
        let lease = Lease::new(None);
        assert!(lease.start(at(5)).is_none());
        lease.renew(at(5), at(100));
        let start = lease.start(at(99));
        assert!(start.is_some() && lease.start(at(100)).is_none());
        assert!(!lease.fenced(at(100)));
        lease.renew(at(100), at(200));
        assert_eq!(lease.standing(at(100)), Standing::Out(at(100)), "it may begin to run at any moment");
        drop(start);
        assert!(lease.fenced(at(100)));
        lease.renew(at(100), at(200));
        assert!(lease.is_good(at(100)));
    }

    #[tokio::test]
    async fn the_next_worker_finds_what_was_renewed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/n.lease");
        let lease = in_file(path.clone(), "boot");
        assert!(matches!(lease.found(), Found::Nothing(_)));
        lease.renew(at(5), at(1234));
        crate::tests::eventually("the file is written", || async { path.exists() }).await;
        assert_eq!(lease.found(), Found::Deadline(at(1234)));

        let after_reboot = in_file(path.clone(), "another boot");
        assert!(matches!(after_reboot.found(), Found::Nothing(why) if why.contains("boot before")));
        std::fs::write(&path, b"{").unwrap();
        assert!(matches!(lease.found(), Found::Nothing(why) if why.contains("can not be read")));
    }

    #[test]
    fn a_directory_that_can_not_be_written_is_an_error() {
        let error = LeasePath::new("/proc/nowhere/n.lease".into(), "boot".into()).map(drop).unwrap_err();
        assert!(!error.to_string().is_empty());
    }
}
