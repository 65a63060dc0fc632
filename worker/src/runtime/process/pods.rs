//! What becomes of process pods: started, looked after, found again. All of it is called with the node locked.

use std::collections::HashSet;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::ids::PodId;
use tokio::sync::broadcast;

use super::folder::{Folder, Life, Record};
use super::system::{Who, find_leader, kill_marked};
use super::{ProcessRuntime, log, spawn};
use crate::runtime::{Container, ContainerRequest, RuntimeError, label};

/// The exit code of a pod that ended while no worker was its parent: nobody can know the real one.
pub(super) const UNKNOWN_EXIT: i64 = 255;

/// How long the kernel may take to end a killed process; longer means it hangs in a device.
const KILL: Duration = Duration::from_secs(5);

pub(super) struct Inner {
    pub(super) root: PathBuf,
    /// Processes some task of ours waits for. The task of a child knows its exit code, so nobody else may judge it.
    watched: Mutex<HashSet<Who>>,
    pub(super) hints: broadcast::Sender<(String, Option<PodId>)>,
}

impl Inner {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, watched: Mutex::default(), hints: broadcast::Sender::new(64) }
    }

    /// The container in a folder, after looking what became of it.
    fn refresh(self: &Arc<Self>, folder: &Folder) -> Option<Record> {
        let mut record = folder.load()?;
        let life = match &record.life {
            Life::Running(who) if who.lives() => {
                self.watch(folder, who.clone(), None);
                return Some(record);
            }
            // Its own task will say how it ended.
            Life::Running(who) if self.watched().contains(who) => return Some(record),
            Life::Running(_) => {
                kill_marked(&folder.path);
                Life::Exited(UNKNOWN_EXIT)
            }
            Life::Starting => match find_leader(&folder.path) {
                Some(who) => {
                    self.watch(folder, who.clone(), None);
                    Life::Running(who)
                }
                None => return Some(record),
            },
            Life::Exited(_) => return Some(record),
        };
        record.life = life;
        self.store_or_warn(folder, &record);
        Some(record)
    }

    /// What is not written down now is found out again at the next look.
    fn store_or_warn(&self, folder: &Folder, record: &Record) {
        if let Err(error) = folder.store(record) {
            tracing::warn!(pod = folder.handle, %error, "the state of a process pod can not be written");
        }
    }

    pub(super) fn run(
        self: &Arc<Self>,
        folder: &Folder,
        request: &ContainerRequest,
    ) -> Result<Container, RuntimeError> {
        let record = match self.refresh(folder) {
            Some(record) if record.life != Life::Starting => record,
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
        if request.container.command.is_empty() {
            return Err(RuntimeError::Refused(spawn::NO_COMMAND.to_owned()));
        }
        // Something of it can only run now if its state was damaged: two must not.
        kill_marked(&folder.path);
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
            tracing::warn!(pod = folder.handle, %error, "a process pod that did not start is left behind");
        }
        started
    }

    /// Starts it and writes down as what. The record says `Starting` first: whoever finds that after a crash looks for
    /// the process by its environment.
    fn start(self: &Arc<Self>, folder: &Folder, mut record: Record) -> Result<Record, RuntimeError> {
        let failed =
            |error: io::Error| RuntimeError::Failed(format!("process pod {}: {error}", folder.handle));
        record.life = Life::Starting;
        folder.store(&record).map_err(failed)?;
        let mut child = spawn::spawn(folder, &record)?;
        // It is our child and not yet waited for: it has its id even if it has ended.
        let who = i32::try_from(child.id()).ok().and_then(Who::of);
        let written = match &who {
            Some(who) => {
                record.life = Life::Running(who.clone());
                folder.store(&record)
            }
            None => Err(io::Error::other("/proc does not show it")),
        };
        match (written, who) {
            (Ok(()), Some(who)) => {
                self.watch(folder, who, Some(child));
                Ok(record)
            }
            (written, _) => {
                let _ended = child.kill();
                let _status = child.wait();
                kill_marked(&folder.path);
                Err(failed(written.err().unwrap_or_else(|| io::Error::other("no state"))))
            }
        }
    }

    pub(super) fn restart(self: &Arc<Self>, folder: &Folder) -> Result<(), RuntimeError> {
        let Some(record) = self.refresh(folder) else {
            return Err(RuntimeError::NotFound(format!("process pod {}", folder.handle)));
        };
        if matches!(record.life, Life::Running(_)) {
            return Ok(());
        }
        let last = record.life.clone();
        self.start(folder, record.clone()).map(drop).inspect_err(|_| {
            // `Starting` would read as if it had never run.
            self.store_or_warn(folder, &Record { life: last, ..record });
        })
    }

    fn watched(&self) -> MutexGuard<'_, HashSet<Who>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for its end, once, in a task of its own: writes it down and says so.
    fn watch(self: &Arc<Self>, folder: &Folder, who: Who, child: Option<Child>) {
        if !self.watched().insert(who.clone()) {
            return;
        }
        let runtime = ProcessRuntime { inner: self.clone() };
        let folder = folder.clone();
        tokio::spawn(async move {
            who.gone().await;
            let node = folder.node().to_owned();
            let ended = who.clone();
            let noted = runtime.locked(&node, move |inner| Ok(inner.ended(&folder, &ended, child))).await;
            let pod = noted.unwrap_or_else(|error| {
                // The next list sees that it is gone, though not how it ended.
                tracing::warn!(%error, "the end of a process pod could not be noted");
                runtime.inner.watched().remove(&who);
                None
            });
            // Nobody listens: fine, they list.
            let _ = runtime.inner.hints.send((node, pod));
        });
    }

    fn ended(&self, folder: &Folder, who: &Who, child: Option<Child>) -> Option<PodId> {
        // Reaped in any case, also when the folder is gone.
        let status = child.and_then(|mut child| child.wait().ok());
        self.watched().remove(who);
        kill_marked(&folder.path);
        let mut record = folder.load()?;
        if record.life == Life::Running(who.clone()) {
            record.life = Life::Exited(status.map_or(UNKNOWN_EXIT, exit_code));
            self.store_or_warn(folder, &record);
        }
        PodId::new(record.labels.get(label::POD)?.as_str()).ok()
    }

    pub(super) fn list(self: &Arc<Self>, node: &str) -> Result<Vec<Container>, RuntimeError> {
        let failed = |error: io::Error| RuntimeError::Engine(format!("{}: {error}", self.root.display()));
        let mut containers = Vec::new();
        for entry in std::fs::read_dir(self.root.join(node)).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let handle = format!("{node}/{}", name.to_string_lossy());
            let Ok(folder) = Folder::new(&self.root, &handle) else { continue };
            if let Err(error) = log::cut(&folder) {
                tracing::warn!(pod = handle, %error, "the log of a process pod can not be cut");
            }
            containers.extend(self.refresh(&folder).and_then(|record| record.container(&handle)));
        }
        Ok(containers)
    }
}

/// Ends what is left, as the end of a container's first process ends all others, and forgets the pod. The node is
/// locked meanwhile, so nothing is started from the folder that goes.
pub(super) fn remove(folder: &Folder) -> Result<(), RuntimeError> {
    let failed = |detail: String| RuntimeError::Failed(format!("process pod {}: {detail}", folder.handle));
    let deadline = Instant::now() + KILL;
    while kill_marked(&folder.path) > 0 {
        if Instant::now() > deadline {
            return Err(failed(format!("still there {} s after SIGKILL", KILL.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    folder.remove().map_err(|error| failed(error.to_string()))
}

fn exit_code(status: ExitStatus) -> i64 {
    let signal = || status.signal().map(|signal| 128 + i64::from(signal));
    status.code().map(i64::from).or_else(signal).unwrap_or(UNKNOWN_EXIT)
}
