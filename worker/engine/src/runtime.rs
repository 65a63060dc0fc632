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

/// The refusal to copy files of a runtime without images.
const NO_FILES: &str = "the pods of this runtime have no files of their own: copy on their node";

/// Runs containers. Every call has its own deadline and never hangs.
pub trait Runtime: Send + Sync + 'static {
    /// Checks that the engine answers. Cheap; called with each heartbeat.
    fn ping(&self) -> BoxFuture<'_, Result<EngineInfo, RuntimeError>>;

    /// Returns all containers with this node's label, in any state and of all clusters.
    fn list<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<Container>, RuntimeError>>;

    /// Returns the current state of one container of this node, even if lists lag; `None` if it does not
    /// exist.
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

    /// Returns the container's handle for this identity without asking the engine. Other calls accept it like
    /// the handles of [`Runtime::list`].
    fn handle_of(&self, identity: &Identity) -> String {
        identity.container_name()
    }

    /// Like [`Runtime::list`] without ended containers: for the fence. Waits longer for a slow engine and
    /// inspects no container, so that a broken one affects no other.
    fn list_live<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<Container>, RuntimeError>> {
        Box::pin(async move {
            let all = self.list(node).await?;
            Ok(all.into_iter().filter(|container| container.state.may_run()).collect())
        })
    }

    /// Pulls the image if `policy` requires it, by default if the engine lacks it. `logins` are used where
    /// the worker has no own credentials.
    fn ensure_image<'a>(
        &'a self,
        image: &'a str,
        policy: PullPolicy,
        logins: &'a Arc<dyn RegistryLogins>,
    ) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Returns true if an image name can come to denote another image.
    fn has_images(&self) -> bool {
        false
    }

    /// Returns a local image by name or id; `None` if it is missing, or this runtime has no images.
    fn local_image<'a>(&'a self, _image: &'a str) -> BoxFuture<'a, Result<Option<LocalImage>, RuntimeError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Creates the container, or finds the existing one of this identity, and starts it if it never started.
    /// Returns it as [`Runtime::list`] would.
    fn run<'a>(&'a self, request: &'a ContainerRequest) -> BoxFuture<'a, Result<Container, RuntimeError>>;

    /// Returns true if the containers of a pod share the network of a sandbox.
    fn has_sandboxes(&self) -> bool {
        false
    }

    /// Like [`Runtime::run`], for the sandbox of a pod with several containers, which has the pod's address
    /// and published ports. `identity` is the pod's, without a container.
    fn run_sandbox<'a>(
        &'a self,
        identity: &'a Identity,
        _ports: &'a [Port],
    ) -> BoxFuture<'a, Result<Container, RuntimeError>> {
        let name = identity.container_name();
        Box::pin(async move { Err(RuntimeError::Refused(format!("{name}: this runtime has no sandboxes"))) })
    }

    /// Returns true if containers are reached at this machine's loopback address.
    fn uses_host_network(&self) -> bool {
        false
    }

    /// Returns true if containers can be in a pod network.
    fn has_pod_networks(&self) -> bool {
        false
    }

    /// Ensures that the pod network of this cluster exists, and joins new containers to it from now on.
    /// Returns the engine's host in it.
    fn join_pod_network<'a>(
        &'a self,
        _cluster: &'a ClusterId,
    ) -> BoxFuture<'a, Result<Gateway, RuntimeError>> {
        let refused = RuntimeError::Refused("this runtime has no networks for pods".to_owned());
        Box::pin(std::future::ready(Err(refused)))
    }

    /// Puts new containers into the engine's default network from now on. Before either call they join an
    /// existing pod network, because names worked before this process began.
    fn leave_pod_network(&self) {}

    /// Returns an image's health check; `None` if it has none or is missing.
    fn image_check<'a>(
        &'a self,
        _image: &'a str,
    ) -> BoxFuture<'a, Result<Option<HealthCheck>, RuntimeError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Stops a container like [`Runtime::stop`], but keeps it for a restart. Succeeds if it does not run.
    fn halt<'a>(&'a self, handle: &'a str, grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Sends a signal to the first process of a container. Succeeds if it does not run.
    fn signal<'a>(
        &'a self,
        _handle: &'a str,
        _signal: StopSignal,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns the directory of volumes on the machine; `None` if unknown.
    fn volumes_directory(&self) -> BoxFuture<'_, Option<PathBuf>> {
        Box::pin(std::future::ready(None))
    }

    /// Returns all volumes with this node's label, of all clusters.
    fn volumes<'a>(&'a self, _node: &'a NodeName) -> BoxFuture<'a, Result<Vec<EngineVolume>, RuntimeError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Removes a volume with its data, unless a container uses it. Returns true if it is gone.
    fn remove_volume<'a>(&'a self, _handle: &'a str) -> BoxFuture<'a, Result<bool, RuntimeError>> {
        Box::pin(std::future::ready(Ok(true)))
    }

    /// Starts an exited container again. Succeeds if it runs already.
    fn restart<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Stops a container (SIGTERM, SIGKILL after `grace`) and removes it. Succeeds if it does not exist.
    fn stop<'a>(&'a self, handle: &'a str, grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Stops containers that must not run any longer, and keeps them. Asks all at once, whatever their
    /// number, and kills those that outlive their grace period, at `kill_by` at the latest. Succeeds if none
    /// of them runs.
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

    /// Streams the container's output, oldest first: the last `tail` lines, and with `follow` all later ones
    /// until the container ends or the stream is dropped.
    fn logs<'a>(
        &'a self,
        handle: &'a str,
        tail: usize,
        follow: bool,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError>>;

    /// Streams the lines of a container's log with their times, oldest first.
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

    /// Returns the start of the container's current run, in nanoseconds since the Unix epoch, to tell its
    /// lines from earlier ones; `None` if unknown.
    fn run_began_at<'a>(&'a self, _handle: &'a str) -> BoxFuture<'a, Result<Option<u64>, RuntimeError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Returns true if an image came from a registry; one built or loaded here exists nowhere else. True for
    /// a missing image.
    fn came_from_registry<'a>(&'a self, _image: &'a str) -> BoxFuture<'a, Result<bool, RuntimeError>> {
        Box::pin(std::future::ready(Ok(true)))
    }

    /// Removes an image, unless a container uses it. Succeeds if it is missing.
    fn remove_image<'a>(&'a self, _image: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Asks a registry whether a login is valid.
    fn check_login<'a>(
        &'a self,
        _host: &'a RegistryHost,
        _login: &'a RegistryLogin,
    ) -> BoxFuture<'a, LoginVerdict> {
        Box::pin(std::future::ready(LoginVerdict::Unknown("this runtime asks no registry".to_owned())))
    }

    /// Runs a program in a running container, with its directory, user, environment and limits. Waits at most
    /// `limit`, after which plain processes are killed; an engine cannot kill a command.
    ///
    /// # Errors
    /// `NotFound` if the container does not run.
    fn exec<'a>(
        &'a self,
        handle: &'a str,
        command: &'a [String],
        limit: Duration,
    ) -> BoxFuture<'a, Result<ExecResult, RuntimeError>>;

    /// Returns the usage of these containers since their start, in this order; `None` if not measured.
    fn counters<'a>(&'a self, handles: &'a [String]) -> BoxFuture<'a, Vec<Option<Counters>>> {
        Box::pin(std::future::ready(vec![None; handles.len()]))
    }

    /// Starts an interactive command in a running container, with its directory, user, environment and
    /// limits.
    ///
    /// # Errors
    /// `NotFound` if the container does not run; `Refused` if this runtime does not support the request.
    fn start_command<'a>(
        &'a self,
        _handle: &'a str,
        _request: &'a CommandRequest,
    ) -> BoxFuture<'a, Result<RunningCommand, RuntimeError>> {
        let refused = RuntimeError::Refused("this runtime has no commands in containers".to_owned());
        Box::pin(std::future::ready(Err(refused)))
    }

    /// Attaches a client to the standard input and output of a container's main process. If the input belongs
    /// to the first client, that client receives all earlier output.
    ///
    /// # Errors
    /// `NotFound` if the container does not exist; `Refused` if it has no standard input, or the runtime does
    /// not support it.
    fn attach<'a>(
        &'a self,
        _handle: &'a str,
        _size: Option<TerminalSize>,
    ) -> BoxFuture<'a, Result<RunningCommand, RuntimeError>> {
        let refused = RuntimeError::Refused("containers of this runtime have no standard input".to_owned());
        Box::pin(std::future::ready(Err(refused)))
    }

    /// Unpacks a tar archive into a directory of a container.
    ///
    /// # Errors
    /// `Refused` if this runtime has no files of its own.
    fn unpack<'a>(
        &'a self,
        _handle: &'a str,
        _directory: &'a str,
        _archive: BoxStream<'static, io::Result<Bytes>>,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(std::future::ready(Err(RuntimeError::Refused(NO_FILES.to_owned()))))
    }

    /// Returns a file or directory of a container as a tar archive, named as the last part of its path.
    ///
    /// # Errors
    /// `Refused` if this runtime has no files of its own.
    fn archive<'a>(
        &'a self,
        _handle: &'a str,
        _path: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError>> {
        Box::pin(std::future::ready(Err(RuntimeError::Refused(NO_FILES.to_owned()))))
    }

    /// Streams hints that this node's containers changed. When the engine ends the stream, the caller lists
    /// and subscribes again.
    fn hints<'a>(
        &'a self,
        node: &'a NodeName,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Hint>, RuntimeError>>;
}

/// Returns the containers of this node and of `cluster`, in any state.
///
/// # Errors
/// If the engine cannot list them.
pub async fn list_own(
    runtime: &dyn Runtime,
    node: &NodeName,
    cluster: Option<&ClusterId>,
) -> Result<Vec<Container>, RuntimeError> {
    let mut containers = runtime.list(node).await?;
    containers.retain(|container| container.is_of(cluster));
    Ok(containers)
}
