//! Container runtimes: the interface between the worker and what runs containers, and its implementations.
//!
//! A runtime decides nothing and keeps no state of its own: containers are found by [`Runtime::list`], by
//! label. Every call may be repeated, and every call may have been carried out although its answer was lost.

pub mod docker;
mod exec;
#[cfg(debug_assertions)]
pub(crate) mod failpoints;
pub mod process;
pub mod sample_image;
pub mod sim;
#[cfg(test)]
pub(crate) mod testing;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use common::ids::{AssignmentId, ClusterId, NodeName, PodId, PodName, ServiceName};
use common::network::ContainerNetwork;
use common::spec::{ContainerSpec, OnDisconnect};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use sha2::{Digest, Sha256};

pub use exec::ExecResult;

/// Label keys. Fixed, because other programs read them.
pub mod label {
    /// Always `kubeleet`.
    pub const ORCHESTRATOR: &str = "orchestrator";
    /// The node whose worker created the container.
    pub const NODE: &str = "kubeleet.node";
    /// The cluster that the node belonged to. Containers without it are of a version before 0.2.
    pub const CLUSTER: &str = "kubeleet.cluster";
    /// The pod's uuid.
    pub const POD: &str = "kubeleet.pod";
    /// The pod's service, or the pod's name if it belongs to none.
    pub const SERVICE: &str = "kubeleet.service";
    /// The assignment for which it was created.
    pub const ASSIGNMENT: &str = "kubeleet.assignment";
    /// `stop` or `keep`. The fence reads it, because it cannot ask Redis.
    pub const ON_DISCONNECT: &str = "kubeleet.on-disconnect";
    /// Seconds between SIGTERM and SIGKILL. The fence reads it.
    pub const GRACE: &str = "kubeleet.grace";
}

/// The identity of a container: everything that its name and labels are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The node whose worker creates it.
    pub node: NodeName,
    /// The cluster that the node belongs to.
    pub cluster: Option<ClusterId>,
    /// The pod.
    pub pod: PodId,
    /// The pod's name.
    pub name: PodName,
    /// The pod's service, if it has one.
    pub service: Option<ServiceName>,
    /// Index among its service's pods.
    pub replica: u32,
    /// The pod's assignment to this node.
    pub assignment: AssignmentId,
    /// What the fence does with it when the lease has expired.
    pub on_disconnect: OnDisconnect,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
}

impl Identity {
    /// Returns `<name>-<replica>-<hash>`. The hash covers pod and assignment, so that creating twice is one
    /// container.
    pub fn container_name(&self) -> String {
        let mut hasher = Sha256::new();
        hasher.update(self.pod.as_str());
        hasher.update([0]);
        hasher.update(self.assignment.as_str());
        let digest = hasher.finalize();
        let hash: String = digest.iter().take(5).map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{}-{hash}", self.name, self.replica)
    }

    /// Returns its labels.
    pub fn labels(&self) -> BTreeMap<&'static str, String> {
        let service = self.service.as_ref().map_or(self.name.as_str(), |service| service.as_str());
        let cluster = self.cluster.as_ref().map(|cluster| (label::CLUSTER, cluster.to_string()));
        let labels = BTreeMap::from([
            (label::ORCHESTRATOR, "kubeleet".to_owned()),
            (label::NODE, self.node.to_string()),
            (label::POD, self.pod.to_string()),
            (label::SERVICE, service.to_owned()),
            (label::ASSIGNMENT, self.assignment.to_string()),
            (label::ON_DISCONNECT, self.on_disconnect.as_str().to_owned()),
            (label::GRACE, self.grace.as_secs().to_string()),
        ]);
        labels.into_iter().chain(cluster).collect()
    }
}

/// A container to be created. The node's policy has already approved it.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerRequest {
    /// Its identity.
    pub identity: Identity,
    /// Its specification.
    pub container: ContainerSpec,
}

/// A container's state on the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerState {
    /// Created but never started.
    Created,
    /// Its main process runs.
    Running,
    /// Its main process has ended.
    Exited {
        /// Its exit code; 128 + n for signal n.
        code: i64,
        /// The kernel killed it because it exceeded its memory limit.
        out_of_memory: bool,
    },
    /// The engine does not tell: it failed to inspect this container, or named a state that kubeleet does not
    /// know. It may run.
    Unknown,
}

impl ContainerState {
    /// Returns whether its process may run, now or in a moment.
    pub fn may_run(self) -> bool {
        !matches!(self, Self::Exited { .. })
    }
}

/// A container of this node, as the engine lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// The engine's handle for the other calls.
    pub handle: String,
    /// The cluster, from its label; `None` if a version that wrote no such label has created it.
    pub cluster: Option<ClusterId>,
    /// The pod, from its label.
    pub pod: PodId,
    /// The assignment, from its label.
    pub assignment: AssignmentId,
    /// What the fence does with it when the lease has expired, from its label.
    pub on_disconnect: OnDisconnect,
    /// Time between SIGTERM and SIGKILL, from its label.
    pub grace: Duration,
    /// Its state.
    pub state: ContainerState,
    /// Where it can be reached; `None` if the engine does not tell.
    pub network: Option<ContainerNetwork>,
}

impl Container {
    /// Returns whether it may be of `cluster`. One without the label may be of any cluster.
    pub(crate) fn may_be_of(&self, cluster: Option<&ClusterId>) -> bool {
        self.cluster.is_none() || self.cluster.as_ref() == cluster
    }

    /// Reads back what [`Identity::labels`] wrote. Returns `None`, and logs a warning, if that is not
    /// possible.
    fn from_labels<'a>(
        handle: String,
        get: impl Fn(&str) -> Option<&'a str>,
        state: ContainerState,
    ) -> Option<Self> {
        let pod = get(label::POD).and_then(|text| PodId::new(text).ok());
        let assignment = get(label::ASSIGNMENT).and_then(|text| AssignmentId::new(text).ok());
        let Some((pod, assignment)) = pod.zip(assignment) else {
            tracing::warn!(
                container = handle,
                "ignoring a container with kubeleet's label: its pod or assignment label is invalid"
            );
            return None;
        };
        let cluster = get(label::CLUSTER).and_then(|text| ClusterId::new(text).ok());
        let stop = get(label::ON_DISCONNECT) == Some(OnDisconnect::Stop.as_str());
        let on_disconnect = if stop { OnDisconnect::Stop } else { OnDisconnect::Keep };
        let grace = get(label::GRACE).and_then(|text| text.parse().ok()).unwrap_or(10);
        let grace = Duration::from_secs(grace);
        Some(Self { handle, cluster, pod, assignment, on_disconnect, grace, state, network: None })
    }
}

/// Returns the containers of this node, in any state, that may be of `cluster`. Never another cluster's.
///
/// # Errors
/// If the engine cannot list them.
pub(crate) async fn list_own(
    runtime: &dyn Runtime,
    node: &NodeName,
    cluster: Option<&ClusterId>,
) -> Result<Vec<Container>, RuntimeError> {
    let mut containers = runtime.list(node).await?;
    containers.retain(|container| container.may_be_of(cluster));
    Ok(containers)
}

/// Tells that containers may have changed; only a list or an inspection tells how. The default hint means that
/// any may have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hint {
    /// The pod concerned, if the engine tells.
    pub pod: Option<PodId>,
    /// Its container, if a list may not show the change yet.
    pub handle: Option<String>,
    /// A container was created or started and nothing else happened: no news for the worker that did it.
    pub is_start: bool,
}

/// Why a call failed, sorted by what the worker does about it. Each has the engine's own message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// The image could not be pulled: retried with backoff.
    #[error("image pull failed: {0}")]
    Image(String),
    /// The engine refuses this container as specified: not retried.
    #[error("the engine refused the container: {0}")]
    Refused(String),
    /// Another program has a host port of the container: retried, then given back to the schedulers.
    #[error("{0}")]
    PortTaken(String),
    /// There is no such container.
    #[error("no such container: {0}")]
    NotFound(String),
    /// The engine did not answer in time or could not be reached: a problem of the node, not of the pod.
    #[error("the engine does not answer: {0}")]
    Engine(String),
    /// Any other failure: retried with backoff.
    #[error("{0}")]
    Failed(String),
}

/// What an engine is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineInfo {
    /// `docker`, `podman`, `process`, `sim`.
    pub runtime: &'static str,
    /// Name and version, for display.
    pub version: String,
}

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

    /// As [`Runtime::list`], without containers that have ended: what the fence has to know. Waits longer for
    /// a slow engine, and asks nothing about single containers, so that a broken one harms no other.
    fn list_live<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<Container>, RuntimeError>> {
        Box::pin(async move {
            let all = self.list(node).await?;
            Ok(all.into_iter().filter(|container| container.state.may_run()).collect())
        })
    }

    /// Pulls the image, unless the engine has it.
    fn ensure_image<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Creates the container, or finds the one that was created for the same identity before, and starts it
    /// if it was never started. Returns it as [`Runtime::list`] would.
    fn run<'a>(&'a self, request: &'a ContainerRequest) -> BoxFuture<'a, Result<Container, RuntimeError>>;

    /// Starts an exited container again. Succeeds if it runs already.
    fn restart<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Stops a container (SIGTERM, up to `grace` later SIGKILL) and removes it. Succeeds if it does not
    /// exist.
    fn stop<'a>(&'a self, handle: &'a str, grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Streams the container's output, oldest first: the last `tail` lines, and with `follow` everything
    /// after them until the container ends or the stream is dropped.
    fn logs<'a>(
        &'a self,
        handle: &'a str,
        tail: usize,
        follow: bool,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError>>;

    /// Runs a program in a running container: in its directory, as its user, with its environment and limits.
    /// Waits for its end at most `limit`. What runs on then is the runtime's to say: a plain process is killed,
    /// an engine cannot be asked to.
    ///
    /// # Errors
    /// `NotFound` if the container does not run.
    fn exec<'a>(
        &'a self,
        handle: &'a str,
        command: &'a [String],
        limit: Duration,
    ) -> BoxFuture<'a, Result<ExecResult, RuntimeError>>;

    /// Streams hints that containers of this node changed. The stream ends when the engine closes it; the
    /// caller then lists, and subscribes again.
    fn hints<'a>(
        &'a self,
        node: &'a NodeName,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Hint>, RuntimeError>>;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn only_pod_and_assignment_decide_the_hash_in_the_name() {
        let one = testing::identity("node", "pod", "assignment");
        let name = one.container_name();
        assert!(name.starts_with("web-3-") && name.len() == "web-3-".len() + 10, "{name}");
        let other_node =
            Identity { grace: Duration::ZERO, ..testing::identity("other", "pod", "assignment") };
        assert_eq!(other_node.container_name(), name);
        for (pod, assignment) in [("pod2", "assignment"), ("pod", "assignment2"), ("podas", "signment")] {
            assert_ne!(testing::identity("node", pod, assignment).container_name(), name);
        }
    }

    #[test]
    fn labels_are_read_back_as_they_were_written() {
        let identity =
            Identity { on_disconnect: OnDisconnect::Stop, ..testing::identity("node", "pod", "a") };
        let labels = identity.labels();
        let expected = [
            ("kubeleet.assignment", "a"),
            ("kubeleet.cluster", "c"),
            ("kubeleet.grace", "2"),
            ("kubeleet.node", "node"),
            ("kubeleet.on-disconnect", "stop"),
            ("kubeleet.pod", "pod"),
            ("kubeleet.service", "web"),
            ("orchestrator", "kubeleet"),
        ];
        assert_eq!(labels.iter().map(|(k, v)| (*k, v.as_str())).collect::<Vec<_>>(), expected);
        let get = |key: &str| labels.get(key).map(String::as_str);
        let container = Container::from_labels("h".into(), get, ContainerState::Created).unwrap();
        assert_eq!((container.pod, container.assignment), (identity.pod, identity.assignment));
        assert_eq!((container.on_disconnect, container.grace), (OnDisconnect::Stop, identity.grace));
        assert!(Container::from_labels("h".into(), |_| None, ContainerState::Created).is_none());
    }
}
