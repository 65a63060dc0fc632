//! Pods as plain process groups, for machines without a container engine.
//!
//! There is no isolation: isolating options are refused; images, ports and CPU limits have no effect. Pods
//! outlive their worker, even a killed one.

mod exec;
mod folder;
mod interactive;
mod log;
mod log_times;
mod pods;
mod refusal;
mod spawn;
mod system;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::{self, BoxStream, StreamExt};
use model::ids::NodeName;
use model::spec::{PullPolicy, StopSignal};
use rustix::process::Signal;
use tokio::sync::broadcast;
use tokio::time::Instant;

use self::folder::{Folder, PodState};
use self::pods::{CALL_TIMEOUT, ProcessPods};
pub use self::system::ProcessIdentity;
use self::system::find_leader;
use crate::end_all::end_all;
use crate::usage::processes;
use crate::{
    CommandRequest, Container, ContainerRequest, Counters, EngineInfo, ExecResult, Hint, Identity, LineQuery,
    LineStream, RegistryLogins, RunningCommand, Runtime, RuntimeError,
};

#[derive(Clone)]
pub struct ProcessRuntime {
    pods: Arc<ProcessPods>,
}

impl ProcessRuntime {
    pub fn new(root: PathBuf) -> Self {
        // The folder's path marks its processes, so it must not depend on the working directory.
        let root = std::path::absolute(&root).unwrap_or(root);
        Self { pods: Arc::new(ProcessPods::new(root)) }
    }

    fn folder(&self, handle: &str) -> Result<Folder, RuntimeError> {
        Folder::new(&self.pods.root, handle)
    }

    fn existing(&self, handle: &str) -> Result<Folder, RuntimeError> {
        let folder = self.folder(handle)?;
        match folder.load() {
            Some(_) => Ok(folder),
            None => Err(RuntimeError::NotFound(format!("process pod {handle}"))),
        }
    }

    async fn stop_pod(&self, handle: &str, grace: Duration) -> Result<(), RuntimeError> {
        let Ok(folder) = self.folder(handle) else { return Ok(()) };
        Self::end_process(&folder, grace).await;
        if !folder.path.exists() {
            return Ok(());
        }
        let node = folder.node().to_owned();
        self.pods.with_lock(&node, move |_| pods::remove(&folder)).await
    }

    async fn end_process(folder: &Folder, grace: Duration) {
        let (leader, signal) = leader(folder);
        if let Some(leader) = leader {
            leader.signal_group(signal);
            if tokio::time::timeout(grace, leader.exited()).await.is_err() {
                leader.signal_group(Signal::KILL);
                let _late = tokio::time::timeout(CALL_TIMEOUT, leader.exited()).await;
            }
        }
    }

    /// A scan of the machine's processes for each pod would take seconds for hundreds.
    async fn kill(folders: Vec<Folder>) {
        let leaders: Vec<ProcessIdentity> = folders.iter().filter_map(|folder| leader(folder).0).collect();
        for leader in &leaders {
            leader.signal_group(Signal::KILL);
        }
        let paths: Vec<PathBuf> = folders.into_iter().map(|folder| folder.path).collect();
        let _found = tokio::task::spawn_blocking(move || pods::kill_all(&paths)).await;
        let exits = join_all(leaders.iter().map(ProcessIdentity::exited).collect::<Vec<_>>());
        let _late = tokio::time::timeout(CALL_TIMEOUT, exits).await;
    }
}

fn leader(folder: &Folder) -> (Option<ProcessIdentity>, Signal) {
    let record = folder.load();
    let signal = record.as_ref().and_then(|record| Signal::from_named_raw(record.stop_signal?));
    let leader = match record.map(|record| record.state) {
        Some(PodState::Running(process)) => Some(process),
        Some(PodState::Starting) | None => find_leader(&folder.path),
        Some(PodState::Exited(_)) => None,
    };
    (leader, signal.unwrap_or(Signal::TERM))
}

fn counters(folders: &[Option<Folder>]) -> Vec<Option<Counters>> {
    let leader = |folder: &Option<Folder>| match folder.as_ref()?.load()?.state {
        PodState::Running(process) if process.is_running() => Some(process.pid),
        _ => None,
    };
    let leaders: Vec<Option<i32>> = folders.iter().map(leader).collect();
    let running: Vec<i32> = leaders.iter().flatten().copied().collect();
    let mut counted = processes::read(&running).into_iter();
    leaders.into_iter().map(|leader| leader.and_then(|_| counted.next())).collect()
}

impl Runtime for ProcessRuntime {
    fn ping(&self) -> BoxFuture<'_, Result<EngineInfo, RuntimeError>> {
        Box::pin(async {
            let root = &self.pods.root;
            let unusable = |error| RuntimeError::Engine(format!("{}: {error}", root.display()));
            tokio::fs::create_dir_all(root).await.map_err(unusable)?;
            let kernel = tokio::fs::read_to_string("/proc/sys/kernel/osrelease").await.unwrap_or_default();
            Ok(EngineInfo {
                runtime: "process",
                version: format!("Linux {}", kernel.trim()),
                id: String::new(),
            })
        })
    }

    fn list<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<Container>, RuntimeError>> {
        let name = node.to_string();
        Box::pin(self.pods.with_lock(node.as_str(), move |pods| pods.list(&name)))
    }

    fn find<'a>(
        &'a self,
        _node: &'a NodeName,
        handle: &'a str,
    ) -> BoxFuture<'a, Result<Option<Container>, RuntimeError>> {
        Box::pin(async move {
            let folder = self.folder(handle)?;
            let node = folder.node().to_owned();
            self.pods.with_lock(&node, move |pods| Ok(pods.find(&folder))).await
        })
    }

    fn handle_of(&self, identity: &Identity) -> String {
        format!("{}/{}", identity.node, identity.container_name())
    }

    fn ensure_image<'a>(
        &'a self,
        _image: &'a str,
        _policy: PullPolicy,
        _logins: &'a Arc<dyn RegistryLogins>,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn run<'a>(&'a self, request: &'a ContainerRequest) -> BoxFuture<'a, Result<Container, RuntimeError>> {
        let node = request.identity.node.as_str();
        let (request, handle) = (request.clone(), self.handle_of(&request.identity));
        Box::pin(
            self.pods.with_lock(node, move |pods| pods.run(&Folder::new(&pods.root, &handle)?, &request)),
        )
    }

    fn uses_host_network(&self) -> bool {
        true
    }

    fn halt<'a>(&'a self, handle: &'a str, grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            if let Ok(folder) = self.folder(handle) {
                Self::end_process(&folder, grace).await;
            }
            Ok(())
        })
    }

    fn signal<'a>(&'a self, handle: &'a str, signal: StopSignal) -> BoxFuture<'a, Result<(), RuntimeError>> {
        let state = self.folder(handle).ok().and_then(|folder| folder.load()).map(|record| record.state);
        if let (Some(PodState::Running(process)), Some(signal)) =
            (state, Signal::from_named_raw(signal.number()))
        {
            process.signal(signal);
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn restart<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            let folder = self.folder(handle)?;
            let node = folder.node().to_owned();
            self.pods.with_lock(&node, move |pods| pods.restart(&folder)).await
        })
    }

    fn stop<'a>(&'a self, handle: &'a str, grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(self.stop_pod(handle, grace))
    }

    fn end_all<'a>(
        &'a self,
        containers: &'a [Container],
        kill_by: Instant,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        let stopped = move |container: Container| async move {
            let Ok(folder) = self.folder(&container.handle) else { return };
            if let (Some(leader), signal) = leader(&folder) {
                leader.signal_group(signal);
                leader.exited().await;
            }
        };
        let kill = move |left: Vec<Container>| async move {
            Self::kill(left.iter().filter_map(|one| self.folder(&one.handle).ok()).collect()).await;
            Ok(())
        };
        Box::pin(end_all(containers.to_vec(), kill_by, stopped, kill))
    }

    fn logs<'a>(
        &'a self,
        handle: &'a str,
        tail: usize,
        follow: bool,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError>> {
        Box::pin(async move { Ok(log::read(self.existing(handle)?, tail, follow)) })
    }

    fn lines<'a>(
        &'a self,
        handle: &'a str,
        query: LineQuery,
    ) -> BoxFuture<'a, Result<LineStream, RuntimeError>> {
        Box::pin(async move { Ok(log::lines(self.existing(handle)?, query)) })
    }

    fn exec<'a>(
        &'a self,
        handle: &'a str,
        command: &'a [String],
        limit: Duration,
    ) -> BoxFuture<'a, Result<ExecResult, RuntimeError>> {
        Box::pin(async move { exec::exec(&self.pods, self.folder(handle)?, command, limit).await })
    }

    fn counters<'a>(&'a self, handles: &'a [String]) -> BoxFuture<'a, Vec<Option<Counters>>> {
        let folders: Vec<_> = handles.iter().map(|handle| self.folder(handle).ok()).collect();
        Box::pin(async move {
            let count = folders.len();
            let read = move || counters(&folders);
            tokio::task::spawn_blocking(read).await.unwrap_or_else(|_| vec![None; count])
        })
    }

    fn start_command<'a>(
        &'a self,
        handle: &'a str,
        request: &'a CommandRequest,
    ) -> BoxFuture<'a, Result<RunningCommand, RuntimeError>> {
        Box::pin(async move { interactive::start(&self.pods, self.folder(handle)?, request).await })
    }

    fn hints<'a>(
        &'a self,
        node: &'a NodeName,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Hint>, RuntimeError>> {
        let node = node.to_string();
        let receiver = self.pods.hints.subscribe();
        let hints = stream::unfold((receiver, node), |(mut receiver, node)| async move {
            loop {
                let hint = match receiver.recv().await {
                    Ok((of, hint)) if of == node => hint,
                    Ok(_) => continue,
                    Err(broadcast::error::RecvError::Lagged(_)) => Hint::default(),
                    Err(broadcast::error::RecvError::Closed) => return None,
                };
                return Some((hint, (receiver, node)));
            }
        });
        Box::pin(std::future::ready(Ok(hints.boxed())))
    }
}
