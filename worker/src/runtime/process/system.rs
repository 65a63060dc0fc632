//! Processes as the kernel knows them: which is which, whether it still lives, and how to end it.
//!
//! A process id alone names nobody, for it is used again. With the start time and the boot it belongs to, it does.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use procfs::process::Process;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// In the environment of each process of a pod: the pod's folder. Finds a process whose worker died before it could
/// write down the id, and those that left the process group.
pub(super) const MARKER: &str = "KUBELEET_DIR";

/// One process, never mistaken for another that has the same id later.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Who {
    /// Its id, which is also that of the process group it leads.
    pub(crate) pid: i32,
    /// Clock ticks from boot to its start.
    start_time: u64,
    /// The boot these are counted from.
    boot: String,
}

impl Who {
    /// The process that has this id now. None when there is none.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let stat = Process::new(pid).ok()?.stat().ok()?;
        Some(Self { pid, start_time: stat.starttime, boot: boot_id()? })
    }

    /// Whether it still runs. A zombie does not.
    pub(crate) fn lives(&self) -> bool {
        let stat = Process::new(self.pid).ok().and_then(|process| process.stat().ok());
        stat.is_some_and(|stat| stat.starttime == self.start_time && !matches!(stat.state, 'Z' | 'X'))
            && boot_id().is_some_and(|boot| boot == self.boot)
    }

    /// Sends a signal to the process group it leads; it must live, or the group may be another's.
    pub(super) fn signal_group(&self, signal: Signal) {
        if self.lives()
            && let Some(pid) = Pid::from_raw(self.pid)
            && let Err(error) = rustix::process::kill_process_group(pid, signal)
        {
            tracing::debug!(pid = self.pid, %error, "a signal did not arrive");
        }
    }

    /// Sends a signal to it alone.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.lives()
            && let Some(pid) = Pid::from_raw(self.pid)
            && let Err(error) = rustix::process::kill_process(pid, signal)
        {
            tracing::debug!(pid = self.pid, %error, "a signal did not arrive");
        }
    }

    /// Waits until it does not run any more.
    pub(crate) async fn gone(&self) {
        match self.watched() {
            // Readable means ended.
            Some(Ok(watched)) if watched.readable().await.is_ok() => {}
            // No descriptors left, or a kernel before 5.3.
            Some(_) => {
                while self.lives() {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
            None => {}
        }
    }

    /// None when it is gone already.
    #[allow(deprecated, reason = "an OwnedFd keeps what the unsafe replacement asks its callers to promise")]
    fn watched(&self) -> Option<std::io::Result<AsyncFd<OwnedFd>>> {
        let descriptor = Pid::from_raw(self.pid).map(|pid| pidfd_open(pid, PidfdFlags::NONBLOCK));
        // Looked at after opening: from here on the descriptor is this process, not a later one of the same id.
        self.lives().then_some(())?;
        Some(match descriptor? {
            Ok(descriptor) => AsyncFd::with_interest(descriptor, Interest::READABLE),
            Err(error) => Err(error.into()),
        })
    }
}

fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// The leader of the pod with this folder, found by its environment.
pub(super) fn find_leader(folder: &Path) -> Option<Who> {
    let leads =
        |process: &Process| process.stat().is_ok_and(|stat| stat.pgrp == stat.pid && stat.state != 'Z');
    marked(folder).iter().find(|process| leads(process)).and_then(|process| Who::of(process.pid))
}

/// Kills what is left of the pod with this folder, also what left its process group. Gives how many there were.
pub(super) fn kill_marked(folder: &Path) -> usize {
    let left = marked(folder);
    for process in &left {
        let descriptor = Pid::from_raw(process.pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
        // Looked at once more after opening: the id may have gone to another in between.
        if let Some(Ok(descriptor)) = descriptor
            && is_marked(process, folder)
        {
            let _gone_meanwhile = pidfd_send_signal(descriptor, Signal::KILL);
        }
    }
    left.len()
}

fn marked(folder: &Path) -> Vec<Process> {
    let Ok(processes) = procfs::process::all_processes() else { return Vec::new() };
    processes.filter_map(Result::ok).filter(|process| is_marked(process, folder)).collect()
}

fn is_marked(process: &Process, folder: &Path) -> bool {
    // Unreadable means another user's, so not ours; a zombie's is empty.
    let Ok(environment) = std::fs::read(format!("/proc/{}/environ", process.pid)) else { return false };
    let wanted = [MARKER.as_bytes(), b"=", OsStr::as_bytes(folder.as_os_str())].concat();
    environment.split(|byte| *byte == 0).any(|variable| variable == wanted)
}
