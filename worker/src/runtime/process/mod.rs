//! Pods as plain process groups of this machine: for machines without an engine, and for trying things out.
//!
//! There is no isolation: a pod runs as the worker's user, in a folder of its own, with a clean environment and a few
//! limits. Images, ports and cores mean nothing here. What runs is written down in the pod's [`folder`], so a worker
//! that starts later finds it; pods outlive their worker, also a killed one.

mod folder;
mod log;
mod pods;
mod spawn;
mod system;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::ids::NodeName;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use tokio::sync::broadcast;

use self::folder::{Folder, Life};
use self::pods::Inner;
pub(crate) use self::system::Who;
use self::system::find_leader;
use super::{Container, ContainerRequest, EngineInfo, Hint, Runtime, RuntimeError};

/// Disk and kernel answer in milliseconds, or something is badly wrong.
const LIMIT: Duration = Duration::from_secs(10);

/// Process pods below one folder.
#[derive(Clone)]
pub struct ProcessRuntime {
    inner: Arc<Inner>,
}

impl ProcessRuntime {
    /// Keeps its pods below `root`, which is made when it is needed. One `root` may serve many nodes and processes.
    pub fn new(root: PathBuf) -> Self {
        // A pod's folder marks its processes, so it must be the same wherever the worker is started.
        let root = std::path::absolute(&root).unwrap_or(root);
        Self { inner: Arc::new(Inner::new(root)) }
    }

    /// Does something about pods of one node while no other worker of this root does, off the async threads.
    async fn locked<T: Send + 'static>(
        &self,
        node: &str,
        work: impl FnOnce(&Arc<Inner>) -> Result<T, RuntimeError> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let inner = self.inner.clone();
        let folder = inner.root.join(node);
        let shown = folder.display().to_string();
        let task = tokio::task::spawn_blocking(move || {
            let lock = lock(&folder)
                .map_err(|error| RuntimeError::Engine(format!("{}: {error}", folder.display())))?;
            let result = work(&inner);
            drop(lock);
            result
        });
        match tokio::time::timeout(LIMIT, task).await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => Err(RuntimeError::Failed(format!("process pods in {shown}: {error}"))),
            Err(_) => Err(RuntimeError::Engine(format!("{shown}: nothing within {} s", LIMIT.as_secs()))),
        }
    }

    async fn stop_pod(&self, handle: &str, grace: Duration) -> Result<(), RuntimeError> {
        let Ok(folder) = Folder::new(&self.inner.root, handle) else { return Ok(()) };
        let leader = match folder.load().map(|record| record.life) {
            Some(Life::Running(who)) => Some(who),
            Some(Life::Starting) | None => find_leader(&folder.path),
            Some(Life::Exited(_)) => None,
        };
        if let Some(who) = leader {
            who.signal_group(Signal::TERM);
            if tokio::time::timeout(grace, who.gone()).await.is_err() {
                who.signal_group(Signal::KILL);
                let _late = tokio::time::timeout(LIMIT, who.gone()).await;
            }
        }
        if !folder.path.exists() {
            return Ok(());
        }
        let node = folder.node().to_owned();
        self.locked(&node, move |_| pods::remove(&folder)).await
    }
}

/// The lock of a node's folder, once it is free. The folder is made where there is none yet.
fn lock(folder: &Path) -> io::Result<File> {
    let open = || folder::private().write(true).truncate(false).open(folder.join(".lock"));
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

impl Runtime for ProcessRuntime {
    fn ping(&self) -> BoxFuture<'_, Result<EngineInfo, RuntimeError>> {
        Box::pin(async {
            let root = &self.inner.root;
            let unusable = |error| RuntimeError::Engine(format!("{}: {error}", root.display()));
            tokio::fs::create_dir_all(root).await.map_err(unusable)?;
            let kernel = tokio::fs::read_to_string("/proc/sys/kernel/osrelease").await.unwrap_or_default();
            Ok(EngineInfo { runtime: "process", version: format!("Linux {}", kernel.trim()) })
        })
    }

    fn list<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<Container>, RuntimeError>> {
        let name = node.to_string();
        Box::pin(self.locked(node.as_str(), move |inner| inner.list(&name)))
    }

    fn ensure_image<'a>(&'a self, _image: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn run<'a>(&'a self, request: &'a ContainerRequest) -> BoxFuture<'a, Result<Container, RuntimeError>> {
        let node = request.identity.node.as_str();
        let request = request.clone();
        Box::pin(self.locked(node, move |inner| {
            let handle = format!("{}/{}", request.identity.node, request.identity.container_name());
            inner.run(&Folder::new(&inner.root, &handle)?, &request)
        }))
    }

    fn restart<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            let folder = Folder::new(&self.inner.root, handle)?;
            let node = folder.node().to_owned();
            self.locked(&node, move |inner| inner.restart(&folder)).await
        })
    }

    fn stop<'a>(&'a self, handle: &'a str, grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(self.stop_pod(handle, grace))
    }

    fn logs<'a>(
        &'a self,
        handle: &'a str,
        tail: usize,
        follow: bool,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError>> {
        Box::pin(async move {
            let folder = Folder::new(&self.inner.root, handle)?;
            if folder.load().is_none() {
                return Err(RuntimeError::NotFound(format!("process pod {handle}")));
            }
            Ok(log::read(folder, tail, follow))
        })
    }

    fn hints<'a>(
        &'a self,
        node: &'a NodeName,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Hint>, RuntimeError>> {
        let node = node.to_string();
        let receiver = self.inner.hints.subscribe();
        let hints = stream::unfold((receiver, node), |(mut receiver, node)| async move {
            loop {
                let pod = match receiver.recv().await {
                    Ok((of, pod)) if of == node => pod,
                    Ok(_) => continue,
                    // Missed some: anything may have changed.
                    Err(broadcast::error::RecvError::Lagged(_)) => None,
                    Err(broadcast::error::RecvError::Closed) => return None,
                };
                return Some((Hint { pod, began: false }, (receiver, node)));
            }
        });
        Box::pin(std::future::ready(Ok(hints.boxed())))
    }
}
