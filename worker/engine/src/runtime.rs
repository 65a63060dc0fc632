//! What the worker asks of what runs containers.

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

/// Why a runtime without images copies nothing.
const NO_FILES: &str = "the pods of this runtime have no files of their own: copy on their node";

/// Runs containers. Every call has a deadline of its own and never hangs.
pub trait Runtime: Send + Sync + 'static {
    /// Checks that the engine answers. Cheap; called with each heartbeat.
    fn ping(&self) -> BoxFuture<'_, Result<EngineInfo, RuntimeError>>;

    /// Returns all containers with this node's label, in any state, of all clusters. Never another node's.
    fn list<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<Container>, RuntimeError>>;

    /// Returns one container of this node as it is now, also where a list is late; `None` if there is none.
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

    /// Returns the handle of the container that was or would be created for this identity, which the other
    /// calls take as well as the handle from [`Runtime::list`]. Asks no engine.
    fn handle_of(&self, identity: &Identity) -> String {
        identity.container_name()
    }

    /// As [`Runtime::list`], without containers that have ended: what the fence has to know. Waits longer for
    /// a slow engine, and asks nothing about single containers, so that a broken one harms no other.
    fn list_live<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<Container>, RuntimeError>> {
        Box::pin(async move {
            let all = self.list(node).await?;
            Ok(all.into_iter().filter(|container| container.state.may_run()).collect())
        })
    }

    /// Pulls the image, if `policy` says so: by default unless the engine has it. `logins` are used where the
    /// worker has no credentials of its own.
    fn ensure_image<'a>(
        &'a self,
        image: &'a str,
        policy: PullPolicy,
        logins: &'a Arc<dyn RegistryLogins>,
    ) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Returns whether a name of an image can become that of another one.
    fn has_images(&self) -> bool {
        false
    }

    /// Returns what an image is that is here, by its name or id; `None` if there is none, or this runtime has
    /// no images.
    fn local_image<'a>(&'a self, _image: &'a str) -> BoxFuture<'a, Result<Option<LocalImage>, RuntimeError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Creates the container, or finds the one that was created for the same identity before, and starts it
    /// if it was never started. Returns it as [`Runtime::list`] would.
    fn run<'a>(&'a self, request: &'a ContainerRequest) -> BoxFuture<'a, Result<Container, RuntimeError>>;

    /// Returns whether the containers of a pod share one network, which a sandbox holds.
    fn has_sandboxes(&self) -> bool {
        false
    }

    /// As [`Runtime::run`] for the sandbox of a pod with several containers: it runs as long as the pod, and
    /// has the pod's address and its published ports. `identity` is the pod's, without a container.
    fn run_sandbox<'a>(
        &'a self,
        identity: &'a Identity,
        _ports: &'a [Port],
    ) -> BoxFuture<'a, Result<Container, RuntimeError>> {
        let name = identity.container_name();
        Box::pin(async move { Err(RuntimeError::Refused(format!("{name}: this runtime has no sandboxes"))) })
    }

    /// Returns whether containers are reached at this machine's own loopback address.
    fn uses_host_network(&self) -> bool {
        false
    }

    /// Returns whether containers can be in a network for pods.
    fn has_pod_networks(&self) -> bool {
        false
    }

    /// Makes sure that there is a network for the pods of this cluster, in which new containers are from now
    /// on. Returns the engine's host in it.
    fn join_pod_network<'a>(
        &'a self,
        _cluster: &'a ClusterId,
    ) -> BoxFuture<'a, Result<Gateway, RuntimeError>> {
        let refused = RuntimeError::Refused("this runtime has no networks for pods".to_owned());
        Box::pin(std::future::ready(Err(refused)))
    }

    /// From now on new containers are in the engine's own network. Before either is called they are in the
    /// network for pods if it exists: names worked before this process began.
    fn leave_pod_network(&self) {}

    /// Returns the health check that an image describes; `None` if it describes none, or is not there.
    fn image_check<'a>(
        &'a self,
        _image: &'a str,
    ) -> BoxFuture<'a, Result<Option<HealthCheck>, RuntimeError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Stops a container as [`Runtime::stop`] does, and keeps it: it can be restarted. Succeeds if it does
    /// not run.
    fn halt<'a>(&'a self, handle: &'a str, grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Sends a signal to the first process of a container. Succeeds if it does not run.
    fn signal<'a>(
        &'a self,
        _handle: &'a str,
        _signal: StopSignal,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns the directory of the machine in which volumes are; `None` if the engine does not tell.
    fn volumes_directory(&self) -> BoxFuture<'_, Option<PathBuf>> {
        Box::pin(std::future::ready(None))
    }

    /// Returns the volumes with this node's label, of all clusters. Never another node's.
    fn volumes<'a>(&'a self, _node: &'a NodeName) -> BoxFuture<'a, Result<Vec<EngineVolume>, RuntimeError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Removes a volume with its data, unless a container has it. Returns whether it is gone.
    fn remove_volume<'a>(&'a self, _handle: &'a str) -> BoxFuture<'a, Result<bool, RuntimeError>> {
        Box::pin(std::future::ready(Ok(true)))
    }

    /// Starts an exited container again. Succeeds if it runs already.
    fn restart<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Stops a container (SIGTERM, up to `grace` later SIGKILL) and removes it. Succeeds if it does not
    /// exist.
    fn stop<'a>(&'a self, handle: &'a str, grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Ends containers that must not run any longer, and keeps them. All are asked to stop at once, whatever
    /// their number, and those that have not ended when their grace period is over are killed, at `kill_by`
    /// at the latest. Succeeds if none of them runs.
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

    /// Streams the container's output, oldest first: the last `tail` lines, and with `follow` everything
    /// after them until the container ends or the stream is dropped.
    fn logs<'a>(
        &'a self,
        handle: &'a str,
        tail: usize,
        follow: bool,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError>>;

    /// Streams the lines of a container's log with the times at which they were written, oldest first.
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

    /// Returns since when lines of a container are of its present run, in nanoseconds since the Unix epoch;
    /// `None` if the runtime does not tell.
    fn run_began_at<'a>(&'a self, _handle: &'a str) -> BoxFuture<'a, Result<Option<u64>, RuntimeError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Returns whether an image that is here came from a registry: one that was built or loaded here is
    /// nowhere else. An image that is not here can only come from a registry.
    fn came_from_registry<'a>(&'a self, _image: &'a str) -> BoxFuture<'a, Result<bool, RuntimeError>> {
        Box::pin(std::future::ready(Ok(true)))
    }

    /// Removes an image, unless a container has it. Succeeds if it is not there.
    fn remove_image<'a>(&'a self, _image: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Asks the registry of a login whether it is right.
    fn check_login<'a>(
        &'a self,
        _host: &'a RegistryHost,
        _login: &'a RegistryLogin,
    ) -> BoxFuture<'a, LoginVerdict> {
        Box::pin(std::future::ready(LoginVerdict::Unknown("this runtime asks no registry".to_owned())))
    }

    /// Runs a program in a running container: in its directory, as its user, with its environment and limits.
    /// Waits for its end at most `limit`. What runs on then is the runtime's to say: a plain process is
    /// killed, an engine cannot be asked to.
    ///
    /// # Errors
    /// `NotFound` if the container does not run.
    fn exec<'a>(
        &'a self,
        handle: &'a str,
        command: &'a [String],
        limit: Duration,
    ) -> BoxFuture<'a, Result<ExecResult, RuntimeError>>;

    /// Returns what these containers have used since they began, in this order; `None` for one that is not
    /// measured.
    fn counters<'a>(&'a self, handles: &'a [String]) -> BoxFuture<'a, Vec<Option<Counters>>> {
        Box::pin(std::future::ready(vec![None; handles.len()]))
    }

    /// Starts a command in a running container for a person: in its directory, as its user, with its
    /// environment and limits.
    ///
    /// # Errors
    /// `NotFound` if the container does not run; `Refused` if this runtime cannot do what is requested.
    fn start_command<'a>(
        &'a self,
        _handle: &'a str,
        _request: &'a CommandRequest,
    ) -> BoxFuture<'a, Result<RunningCommand, RuntimeError>> {
        let refused = RuntimeError::Refused("this runtime has no commands in containers".to_owned());
        Box::pin(std::future::ready(Err(refused)))
    }

    /// Connects a client with the standard input and output of a container's main process. One whose input
    /// belongs to its first client sends that client all that it has written.
    ///
    /// # Errors
    /// `NotFound` if there is no such container; `Refused` if it has no standard input, or this runtime none.
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

    /// Returns a file or directory of a container as a tar archive. It is named as the last part of its path.
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

    /// Streams hints that containers of this node changed. The stream ends when the engine closes it; the
    /// caller then lists, and subscribes again.
    fn hints<'a>(
        &'a self,
        node: &'a NodeName,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Hint>, RuntimeError>>;
}

/// Returns the containers of this node, in any state, that may be of `cluster`. Never another cluster's.
///
/// # Errors
/// If the engine cannot list them.
pub async fn list_own(
    runtime: &dyn Runtime,
    node: &NodeName,
    cluster: Option<&ClusterId>,
) -> Result<Vec<Container>, RuntimeError> {
    let mut containers = runtime.list(node).await?;
    containers.retain(|container| container.may_be_of(cluster));
    Ok(containers)
}
