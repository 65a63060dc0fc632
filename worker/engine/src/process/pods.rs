//! Starts process pods, watches them, and finds them again, under the lock of the node's folder.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::ids::PodId;
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use tokio::sync::broadcast;

use super::folder::{Folder, PodState, Record, private_file};
use super::log_times::{self, NOTE_INTERVAL};
use super::refusal::refusal;
use super::system::{ProcessIdentity, find_leader, kill_marked};
use super::{log, spawn};
use crate::{Container, ContainerRequest, Hint, RuntimeError, label};

/// The exit code of a pod that ended while no worker was its parent.
pub(super) const UNKNOWN_EXIT_CODE: i64 = 255;

pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// A process that outlives SIGKILL this long hangs in a device.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
const KILL_POLL_INTERVAL: Duration = Duration::from_millis(5);

pub(super) struct ProcessPods {
    pub(super) root: PathBuf,
    /// Only the task of a child learns its exit code: no other code may conclude how it ended.
    watched: Mutex<HashSet<ProcessIdentity>>,
    pub(super) hints: broadcast::Sender<(String, Hint)>,
}

impl ProcessPods {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, watched: Mutex::default(), hints: broadcast::Sender::new(64) }
    }

    /// No other worker of this root touches the pods of `node` meanwhile.
    ///
    /// # Errors
    /// `Engine` after 10 s; `work` may still finish.
    pub(super) async fn with_lock<T: Send + 'static>(
        self: &Arc<Self>,
        node: &str,
        work: impl FnOnce(&Arc<Self>) -> Result<T, RuntimeError> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        match tokio::time::timeout(CALL_TIMEOUT, self.with_lock_however_late(node, work)).await {
            Ok(result) => result,
            Err(_) => {
                let (shown, seconds) = (self.root.join(node), CALL_TIMEOUT.as_secs());
                Err(RuntimeError::Engine(format!("{}: no answer within {seconds} s", shown.display())))
            }
        }
    }

    async fn with_lock_however_late<T: Send + 'static>(
        self: &Arc<Self>,
        node: &str,
        work: impl FnOnce(&Arc<Self>) -> Result<T, RuntimeError> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let (pods, folder) = (self.clone(), self.root.join(node));
        let shown = folder.display().to_string();
        let task = tokio::task::spawn_blocking(move || {
            let lock = lock(&folder)
                .map_err(|error| RuntimeError::Engine(format!("{}: {error}", folder.display())))?;
            let result = work(&pods);
            drop(lock);
            result
        });
        let panicked = |error| RuntimeError::Failed(format!("process pods in {shown}: {error}"));
        task.await.unwrap_or_else(|error| Err(panicked(error)))
    }

    fn refresh(self: &Arc<Self>, folder: &Folder) -> Option<Record> {
        let mut record = folder.load()?;
        let state = match &record.state {
            PodState::Running(process) if process.is_running() => {
                self.watch(folder, process.clone(), None);
                return Some(record);
            }
            // The task that watches it records how it ended.
            PodState::Running(process) if self.watched.lock().contains(process) => return Some(record),
            PodState::Running(_) => {
                kill_marked(std::slice::from_ref(&folder.path));
                PodState::Exited(UNKNOWN_EXIT_CODE)
            }
            PodState::Starting => match find_leader(&folder.path) {
                Some(process) => {
                    self.watch(folder, process.clone(), None);
                    PodState::Running(process)
                }
                None => return Some(record),
            },
            PodState::Exited(_) => return Some(record),
        };
        record.state = state;
        self.store_or_warn(folder, &record);
        Some(record)
    }

    fn store_or_warn(&self, folder: &Folder, record: &Record) {
        if let Err(error) = folder.store(record) {
            tracing::warn!(pod = folder.handle, %error, "the state of a process pod could not be written");
        }
    }

    pub(super) fn run(
        self: &Arc<Self>,
        folder: &Folder,
        request: &ContainerRequest,
    ) -> Result<Container, RuntimeError> {
        let record = match self.refresh(folder) {
            Some(record) if record.state != PodState::Starting => record,
            Some(_) | None => self.start_new(folder, request)?,
        };
        let unreadable =
            || RuntimeError::Failed(format!("process pod {}: its state is damaged", folder.handle));
        record.container(&folder.handle).ok_or_else(unreadable)
    }

    fn start_new(
        self: &Arc<Self>,
        folder: &Folder,
        request: &ContainerRequest,
    ) -> Result<Record, RuntimeError> {
        if let Some(reason) = refusal(&request.container) {
            return Err(RuntimeError::Refused(reason));
        }
        // With a damaged state its process may run. It must not run twice.
        kill_marked(std::slice::from_ref(&folder.path));
        let environment = request.container.environment.iter();
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let record = Record::starting(request);
        let prepared = folder.create().and_then(|()| folder.store_environment(&environment));
        let started = match prepared {
            Ok(()) => self.start(folder, record),
            Err(error) => Err(RuntimeError::Failed(format!("process pod {}: {error}", folder.handle))),
        };
        if started.is_err()
            && let Err(error) = folder.remove()
        {
            tracing::warn!(
                pod = folder.handle, %error,
                "the folder of a process pod that did not start could not be removed"
            );
        }
        started
    }

    /// Stored as `Starting` first: after a crash, a worker looks for the process by its environment.
    fn start(self: &Arc<Self>, folder: &Folder, mut record: Record) -> Result<Record, RuntimeError> {
        let failed =
            |error: io::Error| RuntimeError::Failed(format!("process pod {}: {error}", folder.handle));
        record.state = PodState::Starting;
        folder.store(&record).map_err(failed)?;
        let mut child = spawn::spawn(folder, &record)?;
        // A child keeps its id until it is waited for.
        let process = i32::try_from(child.id()).ok().and_then(ProcessIdentity::of);
        let written = match &process {
            Some(process) => {
                record.state = PodState::Running(process.clone());
                folder.store(&record)
            }
            None => Err(io::Error::other("/proc does not show the new process")),
        };
        match (written, process) {
            (Ok(()), Some(process)) => {
                self.watch(folder, process, Some(child));
                Ok(record)
            }
            (written, _) => {
                let _ended = child.kill();
                let _status = child.wait();
                kill_marked(std::slice::from_ref(&folder.path));
                Err(failed(written.err().unwrap_or_else(|| io::Error::other("no state"))))
            }
        }
    }

    pub(super) fn restart(self: &Arc<Self>, folder: &Folder) -> Result<(), RuntimeError> {
        let Some(record) = self.refresh(folder) else {
            return Err(RuntimeError::NotFound(format!("process pod {}", folder.handle)));
        };
        if matches!(record.state, PodState::Running(_)) {
            return Ok(());
        }
        let before = record.state.clone();
        self.start(folder, record.clone()).map(drop).inspect_err(|_| {
            // `Starting` would read as if it had never run.
            self.store_or_warn(folder, &Record { state: before, ..record });
        })
    }

    fn watch(self: &Arc<Self>, folder: &Folder, process: ProcessIdentity, child: Option<Child>) {
        if !self.watched.lock().insert(process.clone()) {
            return;
        }
        let pods = self.clone();
        let folder = folder.clone();
        tokio::spawn(async move {
            note_log_until(&folder, process.exited()).await;
            let (node, handle) = (folder.node().to_owned(), folder.handle.clone());
            let ended = process.clone();
            // Only this task knows how it ended, so it waits even for a long lock queue: a job with an
            // unknown end would run once more.
            let record = move |pods: &Arc<Self>| Ok(pods.after_exit(&folder, &ended, child));
            let recorded = pods.with_lock_however_late(&node, record).await;
            let pod = recorded.unwrap_or_else(|error| {
                // The next list sees that it has ended, but not how.
                tracing::warn!(%error, "the end of a process pod could not be recorded");
                pods.watched.lock().remove(&process);
                None
            });
            let handle = pod.is_some().then_some(handle);
            let _ = pods.hints.send((node, Hint { pod, handle, is_start: false }));
        });
    }

    fn after_exit(&self, folder: &Folder, process: &ProcessIdentity, child: Option<Child>) -> Option<PodId> {
        let status = child.and_then(|mut child| child.wait().ok());
        self.watched.lock().remove(process);
        kill_marked(std::slice::from_ref(&folder.path));
        let mut record = folder.load()?;
        if record.state == PodState::Running(process.clone()) {
            record.state = PodState::Exited(status.map_or(UNKNOWN_EXIT_CODE, exit_code));
            self.store_or_warn(folder, &record);
        }
        PodId::new(record.labels.get(label::POD)?.as_str()).ok()
    }

    pub(super) fn find(self: &Arc<Self>, folder: &Folder) -> Option<Container> {
        self.refresh(folder)?.container(&folder.handle)
    }

    pub(super) fn list(self: &Arc<Self>, node: &str) -> Result<Vec<Container>, RuntimeError> {
        let failed = |error: io::Error| RuntimeError::Engine(format!("{}: {error}", self.root.display()));
        let mut containers = Vec::new();
        for entry in std::fs::read_dir(self.root.join(node)).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let handle = format!("{node}/{}", name.to_string_lossy());
            let Ok(folder) = Folder::new(&self.root, &handle) else { continue };
            if let Err(error) = log::truncate(&folder) {
                tracing::warn!(pod = handle, %error, "the log of a process pod could not be truncated");
            }
            containers.extend(self.refresh(&folder).and_then(|record| record.container(&handle)));
        }
        Ok(containers)
    }
}

async fn note_log_until(folder: &Folder, exited: impl Future<Output = ()>) {
    let mut exited = std::pin::pin!(exited);
    // Earlier notes are repeated here, and dropped as they do not fit.
    let mut noted = 0;
    loop {
        let has_exited = tokio::time::timeout(NOTE_INTERVAL, &mut exited).await.is_ok();
        noted = log_times::note(folder, noted).unwrap_or(noted);
        if has_exited {
            return;
        }
    }
}

fn lock(folder: &Path) -> io::Result<File> {
    let open = || private_file().write(true).truncate(false).open(folder.join(".lock"));
    let file = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(folder)?;
            open()?
        }
        other => other?,
    };
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

pub(super) fn remove(folder: &Folder) -> Result<(), RuntimeError> {
    let failed = |detail: String| RuntimeError::Failed(format!("process pod {}: {detail}", folder.handle));
    if !kill_all(std::slice::from_ref(&folder.path)) {
        return Err(failed(format!("still running {} s after SIGKILL", KILL_TIMEOUT.as_secs())));
    }
    folder.remove().map_err(|error| failed(error.to_string()))
}

pub(super) fn kill_all(folders: &[PathBuf]) -> bool {
    let deadline = Instant::now() + KILL_TIMEOUT;
    while kill_marked(folders) > 0 {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(KILL_POLL_INTERVAL);
    }
    true
}

pub(super) fn exit_code(status: ExitStatus) -> i64 {
    let signal = || status.signal().map(|signal| 128 + i64::from(signal));
    status.code().map(i64::from).or_else(signal).unwrap_or(UNKNOWN_EXIT_CODE)
}
