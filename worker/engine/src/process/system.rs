//! Processes of the kernel. Ids are reused, so a process is identified by id, start time and boot id.

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

pub(super) const LOG: &str = "log";
/// Its value is the pod's folder; all processes of the pod inherit it. It finds a process whose worker died
/// before recording the id, and one that has left the process group. A process that changed its environment
/// is found by its output, which goes to the pod's log. One with neither could be held by a cgroup only,
/// which an ordinary user cannot make.
pub(super) const MARKER: &str = "KUBELEET_DIR";

/// In the environment of a command of `exec`: it leads a process group, but not the pod's.
pub(super) const EXEC_MARKER: &str = "KUBELEET_EXEC";

/// Most environments are shorter.
const ENVIRONMENT_BYTES: usize = 16 << 10;

const POLL_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Also the id of the process group it leads.
    pub pid: i32,
    start_time: u64,
    boot: String,
}

impl ProcessIdentity {
    pub fn of(pid: i32) -> Option<Self> {
        let stat = Process::new(pid).ok()?.stat().ok()?;
        Some(Self { pid, start_time: stat.starttime, boot: boot_id()? })
    }

    pub fn is_running(&self) -> bool {
        let stat = Process::new(self.pid).ok().and_then(|process| process.stat().ok());
        stat.is_some_and(|stat| stat.starttime == self.start_time && !matches!(stat.state, 'Z' | 'X'))
            && boot_id().is_some_and(|boot| boot == self.boot)
    }

    /// Does nothing after its end: the group id may have been reused.
    pub(super) fn signal_group(&self, signal: Signal) {
        if self.is_running()
            && let Some(pid) = Pid::from_raw(self.pid)
            && let Err(error) = rustix::process::kill_process_group(pid, signal)
        {
            tracing::debug!(pid = self.pid, %error, "a process group could not be signalled");
        }
    }

    pub fn signal(&self, signal: Signal) {
        if self.is_running()
            && let Some(pid) = Pid::from_raw(self.pid)
            && let Err(error) = rustix::process::kill_process(pid, signal)
        {
            tracing::debug!(pid = self.pid, %error, "a process could not be signalled");
        }
    }

    pub async fn exited(&self) {
        match self.watch() {
            Some(Ok(watched)) if watched.readable().await.is_ok() => {}
            // No file descriptors are left, or the kernel is older than 5.10.
            Some(_) => {
                while self.is_running() {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            }
            None => {}
        }
    }

    #[allow(deprecated, reason = "an OwnedFd keeps what the unsafe replacement asks its callers to promise")]
    fn watch(&self) -> Option<std::io::Result<AsyncFd<OwnedFd>>> {
        let descriptor = Pid::from_raw(self.pid).map(|pid| pidfd_open(pid, PidfdFlags::NONBLOCK));
        // Now the descriptor refers to this process, not to a later one with its id.
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

/// Returns how many there were before: 0 if none was left to kill.
pub(super) fn kill_marked(folders: &[PathBuf]) -> usize {
    let mut traces = PodTraces::of(folders);
    let remaining = traces.find();
    for process in &remaining {
        let descriptor = Pid::from_raw(process.pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
        // The id may have been reused in between.
        if let Some(Ok(descriptor)) = descriptor
            && traces.are_on(process)
        {
            let _ended_meanwhile = pidfd_send_signal(descriptor, Signal::KILL);
        }
    }
    remaining.len()
}

pub(super) fn marked(folder: &Path) -> Vec<Process> {
    PodTraces::of(&[folder.to_owned()]).find()
}

struct PodTraces {
    markers: HashSet<Vec<u8>>,
    logs: HashSet<FileIdentity>,
    environment: ProcessEnvironment,
}

impl PodTraces {
    fn of(folders: &[PathBuf]) -> Self {
        let marker =
            |folder: &PathBuf| [MARKER.as_bytes(), b"=", OsStr::as_bytes(folder.as_os_str())].concat();
        Self {
            markers: folders.iter().map(marker).collect(),
            logs: folders.iter().filter_map(|folder| file_identity(&folder.join(LOG))).collect(),
            environment: ProcessEnvironment::default(),
        }
    }

    fn find(&mut self) -> Vec<Process> {
        let Ok(processes) = procfs::process::all_processes() else { return Vec::new() };
        processes.filter_map(Result::ok).filter(|process| self.are_on(process)).collect()
    }

    fn are_on(&mut self, process: &Process) -> bool {
        (self.environment.read(process) && self.environment.has_one_of(&self.markers))
            || self.writes_to_log(process)
    }

    /// Nothing else writes to the log: readers open it as another descriptor.
    fn writes_to_log(&self, process: &Process) -> bool {
        let output = |descriptor: u8| PathBuf::from(format!("/proc/{}/fd/{descriptor}", process.pid));
        let is_log = |file: FileIdentity| self.logs.contains(&file);
        !self.logs.is_empty()
            && [1, 2].into_iter().any(|descriptor| file_identity(&output(descriptor)).is_some_and(is_log))
    }
}

type FileIdentity = (u64, u64);

fn file_identity(path: &Path) -> Option<FileIdentity> {
    let metadata = path.metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[derive(Default)]
struct ProcessEnvironment(Vec<u8>);

impl ProcessEnvironment {
    /// False for another user's process, which is no pod's.
    fn read(&mut self, process: &Process) -> bool {
        self.0.clear();
        // The kernel reports a length of zero, so it is not asked; with this capacity one read is enough.
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
