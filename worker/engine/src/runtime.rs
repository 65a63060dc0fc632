//! The interface of container runtimes.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::BoxStream;
use model::ids::{ClusterId, NodeName, RegistryHost};
use model::network::handover::Gateway;
use model::spec::{HealthCheck, Port, PullPolicy, StopSignal};
use model::stream::channel::TerminalSize;
use model::value::registry::{LoginVerdict, RegistryLogin};
use tokio::time::Instant;

use crate::container::{Container, ContainerRequest, Identity};
use crate::error::RuntimeError;
use crate::exec::ExecResult;
use crate::hint::Hint;
use crate::info::{EngineInfo, LocalImage};
use crate::interactive::{CommandRequest, RunningCommand};
use crate::lines::{self, LineQuery, LineStream};
use crate::registry_logins::RegistryLogins;
use crate::usage::Counters;
use crate::volume::EngineVolume;

const NO_FILES: &str = "the pods of this runtime have no files of their own: copy on their node";

/// Every call has its own deadline and never hangs.
pub trait Runtime: Send + Sync + 'static {
    /// Cheap; called with each heartbeat.
    fn ping(&self) -> BoxFuture<'_, Result<EngineInfo, RuntimeError>>;

    /// Containers with this node's label, in any state and of all clusters.
    fn list<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<Container>, RuntimeError>>;

    /// Current even if lists lag.
    fn find<'a>(
        &'a self,
        node: &'a NodeName,
        handle: &'a str,
    ) -> BoxFuture<'a, Result<Option<Container>, RuntimeError>> {
        Box::pin(async move {
            let all = self.list(node).await?;
            Ok(all.into_iter().find(|container| container.handle == handle))
        })
    }

    /// Asks no engine.
    fn handle_of(&self, identity: &Identity) -> String {
        identity.container_name()
    }

    /// For the fence: waits longer and inspects no container, so that a broken one affects no other.
    fn list_live<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<Container>, RuntimeError>> {
        Box::pin(async move {
            let all = self.list(node).await?;
            Ok(all.into_iter().filter(|container| container.state.may_run()).collect())
        })
    }

    /// The worker's own credentials come before `logins`.
    fn ensure_image<'a>(
        &'a self,
        image: &'a str,
        policy: PullPolicy,
        logins: &'a Arc<dyn RegistryLogins>,
    ) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// True if a name can come to denote another image.
    fn has_images(&self) -> bool {
        false
    }

    /// By name or id; `None` also if this runtime has no images.
    fn local_image<'a>(&'a self, _image: &'a str) -> BoxFuture<'a, Result<Option<LocalImage>, RuntimeError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Finds an existing container of this identity; starts it if it never started.
    fn run<'a>(&'a self, request: &'a ContainerRequest) -> BoxFuture<'a, Result<Container, RuntimeError>>;

    fn has_sandboxes(&self) -> bool {
        false
    }

    /// The sandbox has the pod's address and published ports; `identity` is the pod's.
    fn run_sandbox<'a>(
        &'a self,
        identity: &'a Identity,
        _ports: &'a [Port],
    ) -> BoxFuture<'a, Result<Container, RuntimeError>> {
        let name = identity.container_name();
        Box::pin(async move { Err(RuntimeError::Refused(format!("{name}: this runtime has no sandboxes"))) })
    }

    /// True if containers are reached at loopback.
    fn uses_host_network(&self) -> bool {
        false
    }

    fn has_pod_networks(&self) -> bool {
        false
    }

    /// For containers created from now on. Returns the engine's host in the network.
    fn join_pod_network<'a>(
        &'a self,
        _cluster: &'a ClusterId,
    ) -> BoxFuture<'a, Result<Gateway, RuntimeError>> {
        let refused = RuntimeError::Refused("this runtime has no networks for pods".to_owned());
        Box::pin(std::future::ready(Err(refused)))
    }

    /// Before either call new containers join an existing pod network: names worked before this process
    /// began.
    fn leave_pod_network(&self) {}

    fn image_check<'a>(
        &'a self,
        _image: &'a str,
    ) -> BoxFuture<'a, Result<Option<HealthCheck>, RuntimeError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Like [`Runtime::stop`], but keeps the container for a restart.
    fn halt<'a>(&'a self, handle: &'a str, grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Succeeds if it does not run.
    fn signal<'a>(
        &'a self,
        _handle: &'a str,
        _signal: StopSignal,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn volumes_directory(&self) -> BoxFuture<'_, Option<PathBuf>> {
        Box::pin(std::future::ready(None))
    }

    fn volumes<'a>(&'a self, _node: &'a NodeName) -> BoxFuture<'a, Result<Vec<EngineVolume>, RuntimeError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Returns true if it is gone; false while a container uses it.
    fn remove_volume<'a>(&'a self, _handle: &'a str) -> BoxFuture<'a, Result<bool, RuntimeError>> {
        Box::pin(std::future::ready(Ok(true)))
    }

    /// Succeeds if it runs already.
    fn restart<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// SIGTERM, then SIGKILL after `grace`; removes it. Succeeds if it does not exist.
    fn stop<'a>(&'a self, handle: &'a str, grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Keeps the containers. Asks all at once, and kills those that outlive their grace period, at `kill_by`
    /// at the latest.
    fn end_all<'a>(
        &'a self,
        containers: &'a [Container],
        kill_by: Instant,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        let grace = kill_by.saturating_duration_since(Instant::now());
        let halts = containers.iter().map(move |one| self.halt(&one.handle, one.grace.min(grace)));
        let halts = join_all(halts.collect::<Vec<_>>());
        Box::pin(async move { halts.await.into_iter().collect() })
    }

    /// With `follow`, until the container ends.
    fn logs<'a>(
        &'a self,
        handle: &'a str,
        tail: usize,
        follow: bool,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError>>;

    fn lines<'a>(
        &'a self,
        handle: &'a str,
        query: LineQuery,
    ) -> BoxFuture<'a, Result<LineStream, RuntimeError>> {
        Box::pin(async move {
            let output = self.logs(handle, query.tail.unwrap_or(usize::MAX), query.follow).await?;
            Ok(lines::stamped_when_read(output))
        })
    }

    /// Nanoseconds since the Unix epoch; tells this run's lines from earlier ones.
    fn run_began_at<'a>(&'a self, _handle: &'a str) -> BoxFuture<'a, Result<Option<u64>, RuntimeError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// An image built or loaded here exists nowhere else. True for a missing one.
    fn came_from_registry<'a>(&'a self, _image: &'a str) -> BoxFuture<'a, Result<bool, RuntimeError>> {
        Box::pin(std::future::ready(Ok(true)))
    }

    /// Keeps an image that a container uses.
    fn remove_image<'a>(&'a self, _image: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn check_login<'a>(
        &'a self,
        _host: &'a RegistryHost,
        _login: &'a RegistryLogin,
    ) -> BoxFuture<'a, LoginVerdict> {
        Box::pin(std::future::ready(LoginVerdict::Unknown("this runtime asks no registry".to_owned())))
    }

    /// At the limit plain processes are killed; an engine cannot kill a command.
    ///
    /// # Errors
    /// `NotFound` if the container does not run.
    fn exec<'a>(
        &'a self,
        handle: &'a str,
        command: &'a [String],
        limit: Duration,
    ) -> BoxFuture<'a, Result<ExecResult, RuntimeError>>;

    /// Since the containers' start; `None` if not measured.
    fn counters<'a>(&'a self, handles: &'a [String]) -> BoxFuture<'a, Vec<Option<Counters>>> {
        Box::pin(std::future::ready(vec![None; handles.len()]))
    }

    /// # Errors
    /// `NotFound` if the container does not run; `Refused` if this runtime does not support it.
    fn start_command<'a>(
        &'a self,
        _handle: &'a str,
        _request: &'a CommandRequest,
    ) -> BoxFuture<'a, Result<RunningCommand, RuntimeError>> {
        let refused = RuntimeError::Refused("this runtime has no commands in containers".to_owned());
        Box::pin(std::future::ready(Err(refused)))
    }

    /// If the input belongs to the first client, that client receives all earlier output.
    ///
    /// # Errors
    /// `NotFound` if the container does not exist; `Refused` without standard input or support.
    fn attach<'a>(
        &'a self,
        _handle: &'a str,
        _size: Option<TerminalSize>,
    ) -> BoxFuture<'a, Result<RunningCommand, RuntimeError>> {
        let refused = RuntimeError::Refused("containers of this runtime have no standard input".to_owned());
        Box::pin(std::future::ready(Err(refused)))
    }

    /// # Errors
    /// `Refused` if this runtime has no files of its own. Same below.
    fn unpack<'a>(
        &'a self,
        _handle: &'a str,
        _directory: &'a str,
        _archive: BoxStream<'static, io::Result<Bytes>>,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(std::future::ready(Err(RuntimeError::Refused(NO_FILES.to_owned()))))
    }

    /// The archive is named as the last part of the path.
    fn archive<'a>(
        &'a self,
        _handle: &'a str,
        _path: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError>> {
        Box::pin(std::future::ready(Err(RuntimeError::Refused(NO_FILES.to_owned()))))
    }

    /// After the end of the stream, the caller lists and subscribes again.
    fn hints<'a>(
        &'a self,
        node: &'a NodeName,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Hint>, RuntimeError>>;
}

pub async fn list_own(
    runtime: &dyn Runtime,
    node: &NodeName,
    cluster: Option<&ClusterId>,
) -> Result<Vec<Container>, RuntimeError> {
    let mut containers = runtime.list(node).await?;
    containers.retain(|container| container.is_of(cluster));
    Ok(containers)
}
