//! Processes as the kernel knows them: their identity, whether they still run, and how to end them.
//!
//! A process id alone identifies no process, because ids are reused. Together with the start time and the
//! boot id it does.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use procfs::process::Process;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The name of the file that takes a pod's output.
pub(super) const LOG: &str = "log";
/// Set to the pod's folder in the environment of each process of a pod. It finds a process whose worker died
/// before the process id was written down, and processes that have left the process group. One that was
/// started with another environment is found by its output, which goes to the pod's log. A process that has
/// left group, environment and output behind belongs to no pod any more; only a control group would hold it,
/// which an ordinary user has not.
pub(super) const MARKER: &str = "KUBELEET_DIR";

/// Set in the environment of commands beside the pod's process: each leads a process group, but not the
/// pod's.
pub(super) const EXEC_MARKER: &str = "KUBELEET_EXEC";

/// Most environments are shorter.
const ENVIRONMENT_BYTES: usize = 16 << 10;

/// Between two looks at a process that cannot be watched through a file descriptor.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Identifies one process, and never a later one with the same id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Its id, which is also that of the process group it leads.
    pub pid: i32,
    /// Clock ticks from boot to its start.
    start_time: u64,
    /// The id of the boot from which these are counted.
    boot: String,
}

impl ProcessIdentity {
    /// Returns the identity of the process that has this id now; `None` if there is none.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = Process::new(pid).ok()?.stat().ok()?;
        Some(Self { pid, start_time: stat.starttime, boot: boot_id()? })
    }

    /// Returns whether it still runs. A zombie does not.
    pub fn is_running(&self) -> bool {
        let stat = Process::new(self.pid).ok().and_then(|process| process.stat().ok());
        stat.is_some_and(|stat| stat.starttime == self.start_time && !matches!(stat.state, 'Z' | 'X'))
            && boot_id().is_some_and(|boot| boot == self.boot)
    }

    /// Sends a signal to the process group it leads. Does nothing if it has ended: the group may be another's
    /// by now.
    pub(super) fn signal_group(&self, signal: Signal) {
        if self.is_running()
            && let Some(pid) = Pid::from_raw(self.pid)
            && let Err(error) = rustix::process::kill_process_group(pid, signal)
        {
            tracing::debug!(pid = self.pid, %error, "a process group could not be signalled");
        }
    }

    /// Sends a signal to it alone.
    pub fn signal(&self, signal: Signal) {
        if self.is_running()
            && let Some(pid) = Pid::from_raw(self.pid)
            && let Err(error) = rustix::process::kill_process(pid, signal)
        {
            tracing::debug!(pid = self.pid, %error, "a process could not be signalled");
        }
    }

    /// Waits until it has ended.
    pub async fn exited(&self) {
        match self.watch() {
            // Readable means ended.
            Some(Ok(watched)) if watched.readable().await.is_ok() => {}
            // No file descriptors are left, or the kernel is older than 5.3.
            Some(_) => {
                while self.is_running() {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            }
            None => {}
        }
    }

    /// Returns `None` if it has ended already.
    #[allow(deprecated, reason = "an OwnedFd keeps what the unsafe replacement asks its callers to promise")]
    fn watch(&self) -> Option<std::io::Result<AsyncFd<OwnedFd>>> {
        let descriptor = Pid::from_raw(self.pid).map(|pid| pidfd_open(pid, PidfdFlags::NONBLOCK));
        // Checked after opening: from here on the descriptor is this process, not a later one with the same
        // id.
        self.is_running().then_some(())?;
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

/// Returns the leading process of the pod with this folder, found by its environment.
pub(super) fn find_leader(folder: &Path) -> Option<ProcessIdentity> {
    let mut traces = PodTraces::of(&[folder.to_owned()]);
    let exec = [EXEC_MARKER.as_bytes(), b"=1"].concat();
    let mut is_leader = |process: &Process| {
        process.stat().is_ok_and(|stat| stat.pgrp == stat.pid && stat.state != 'Z')
            && traces.environment.read(process)
            && traces.environment.has_one_of(&traces.markers)
            && !traces.environment.has(&exec)
    };
    let leader = marked(folder).into_iter().find(&mut is_leader)?;
    ProcessIdentity::of(leader.pid)
}

/// Kills the remaining processes of the pods with these folders, also those that left the process groups of
/// their pods. Returns how many there were.
pub(super) fn kill_marked(folders: &[PathBuf]) -> usize {
    let mut traces = PodTraces::of(folders);
    let remaining = traces.find();
    for process in &remaining {
        let descriptor = Pid::from_raw(process.pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
        // Checked again after opening: another process may have got the id in between.
        if let Some(Ok(descriptor)) = descriptor
            && traces.are_on(process)
        {
            let _ended_meanwhile = pidfd_send_signal(descriptor, Signal::KILL);
        }
    }
    remaining.len()
}

/// Returns the processes of the pod with this folder. One that was killed is among them until it has ended.
pub(super) fn marked(folder: &Path) -> Vec<Process> {
    PodTraces::of(&[folder.to_owned()]).find()
}

/// What the processes of some pods are known by. Made once for all processes of the machine: there may be
/// thousands, and each end of a pod looks at all of them.
struct PodTraces {
    /// The variables, one of which each of them has.
    markers: HashSet<Vec<u8>>,
    /// Where their output goes, as far as there are logs.
    logs: HashSet<FileIdentity>,
    environment: ProcessEnvironment,
}

impl PodTraces {
    /// Of the pods with these folders.
    fn of(folders: &[PathBuf]) -> Self {
        let marker =
            |folder: &PathBuf| [MARKER.as_bytes(), b"=", OsStr::as_bytes(folder.as_os_str())].concat();
        Self {
            markers: folders.iter().map(marker).collect(),
            logs: folders.iter().filter_map(|folder| file_identity(&folder.join(LOG))).collect(),
            environment: ProcessEnvironment::default(),
        }
    }

    /// Returns the processes of the machine that have them.
    fn find(&mut self) -> Vec<Process> {
        let Ok(processes) = procfs::process::all_processes() else { return Vec::new() };
        processes.filter_map(Result::ok).filter(|process| self.are_on(process)).collect()
    }

    fn are_on(&mut self, process: &Process) -> bool {
        (self.environment.read(process) && self.environment.has_one_of(&self.markers))
            || self.writes_to_log(process)
    }

    /// Returns whether the output of the process goes to the log of one of the pods: it was started by a
    /// process of the pod without its environment. Nothing else writes there: readers have the log as another
    /// descriptor than these two.
    fn writes_to_log(&self, process: &Process) -> bool {
        let output = |descriptor: u8| PathBuf::from(format!("/proc/{}/fd/{descriptor}", process.pid));
        let is_log = |file: FileIdentity| self.logs.contains(&file);
        !self.logs.is_empty()
            && [1, 2].into_iter().any(|descriptor| file_identity(&output(descriptor)).is_some_and(is_log))
    }
}

/// Device and inode.
type FileIdentity = (u64, u64);

fn file_identity(path: &Path) -> Option<FileIdentity> {
    let metadata = path.metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// The environment of the process that was read last.
#[derive(Default)]
struct ProcessEnvironment(Vec<u8>);

impl ProcessEnvironment {
    /// Returns false if it cannot be read: it is another user's, so not a pod's. A zombie's is empty.
    fn read(&mut self, process: &Process) -> bool {
        self.0.clear();
        // With room for all of it, it is read at once. The kernel says that its length is zero.
        self.0.reserve(ENVIRONMENT_BYTES);
        let file = File::open(format!("/proc/{}/environ", process.pid));
        file.and_then(|file| file.take(u64::MAX).read_to_end(&mut self.0)).is_ok()
    }

    fn has(&self, assignment: &[u8]) -> bool {
        BufRead::split(self.0.as_slice(), 0)
            .any(|variable| variable.is_ok_and(|variable| variable == assignment))
    }

    fn has_one_of(&self, assignments: &HashSet<Vec<u8>>) -> bool {
        BufRead::split(self.0.as_slice(), 0)
            .any(|variable| variable.is_ok_and(|variable| assignments.contains(&variable)))
    }
}
