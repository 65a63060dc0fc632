//! Runtimes: the seam between the worker and what runs containers.
//!
//! A runtime does as it is told and remembers nothing of its own: what runs is found by [`Runtime::list`], by label.
//! Every call may be repeated; every call may have been carried out although its answer was lost.

pub mod docker;
#[cfg(debug_assertions)]
pub(crate) mod failing;
pub mod hello;
pub mod process;
pub mod sim;
#[cfg(test)]
mod testing;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use common::ids::{AssignmentId, NodeName, PodId, PodName, ServiceName};
use common::spec::{ContainerSpec, OnDisconnect};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use sha2::{Digest, Sha256};

/// Label keys; fixed by the outside contract.
pub mod label {
    /// Always `kubeleet`.
    pub const ORCHESTRATOR: &str = "orchestrator";
    /// The node whose worker made the container.
    pub const NODE: &str = "kubeleet.node";
    /// The pod's uuid.
    pub const POD: &str = "kubeleet.pod";
    /// The pod's service, or its name when it belongs to none.
    pub const SERVICE: &str = "kubeleet.service";
    /// The assignment it was made for.
    pub const ASSIGNMENT: &str = "kubeleet.assignment";
    /// `stop` or `keep`: read by the fence, which may have no Redis to ask.
    pub const ON_DISCONNECT: &str = "kubeleet.on-disconnect";
    /// Seconds between SIGTERM and SIGKILL: read by the fence.
    pub const GRACE: &str = "kubeleet.grace";
}

/// Whose container it is: all that its name and labels are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The node whose worker makes it.
    pub node: NodeName,
    /// The pod.
    pub pod: PodId,
    /// The pod's name.
    pub name: PodName,
    /// The pod's service, if it has one.
    pub service: Option<ServiceName>,
    /// Index among its service's pods.
    pub replica: u32,
    /// Which giving of the pod to this node.
    pub assignment: AssignmentId,
    /// What the fence does with it.
    pub on_disconnect: OnDisconnect,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
}

impl Identity {
    /// `<name>-<replica>-<hash>`. Pod and assignment decide the hash, so creating twice is one container.
    pub fn container_name(&self) -> String {
        let mut hasher = Sha256::new();
        hasher.update(self.pod.as_str());
        hasher.update([0]);
        hasher.update(self.assignment.as_str());
        let digest = hasher.finalize();
        let hash: String = digest.iter().take(5).map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{}-{hash}", self.name, self.replica)
    }

    /// The labels it carries.
    pub fn labels(&self) -> BTreeMap<&'static str, String> {
        let service = self.service.as_ref().map_or(self.name.as_str(), |service| service.as_str());
        BTreeMap::from([
            (label::ORCHESTRATOR, "kubeleet".to_owned()),
            (label::NODE, self.node.to_string()),
            (label::POD, self.pod.to_string()),
            (label::SERVICE, service.to_owned()),
            (label::ASSIGNMENT, self.assignment.to_string()),
            (label::ON_DISCONNECT, self.on_disconnect.as_str().to_owned()),
            (label::GRACE, self.grace.as_secs().to_string()),
        ])
    }
}

/// A container to be made. The node's policy has already approved it.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerRequest {
    /// Whose it is.
    pub identity: Identity,
    /// What it is.
    pub container: ContainerSpec,
}

/// What the engine says a container does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerState {
    /// Made but never started.
    Created,
    /// Its process runs.
    Running,
    /// Its process ended.
    Exited {
        /// Its exit code; 128 + n for signal n.
        code: i64,
        /// The kernel killed it for its memory.
        out_of_memory: bool,
    },
}

/// A container of this node, as the engine lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// The engine's handle for the other calls.
    pub handle: String,
    /// The pod, from its label.
    pub pod: PodId,
    /// The assignment, from its label.
    pub assignment: AssignmentId,
    /// What the fence does with it, from its label.
    pub on_disconnect: OnDisconnect,
    /// Time between SIGTERM and SIGKILL, from its label.
    pub grace: Duration,
    /// What it does.
    pub state: ContainerState,
    /// Its address, where the engine gives one; else empty.
    pub address: String,
}

impl Container {
    /// Reads back what [`Identity::labels`] wrote. None, and a warning, when it is not readable as ours.
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
                "labelled as kubeleet's, but pod or assignment can not be read"
            );
            return None;
        };
        let stop = get(label::ON_DISCONNECT) == Some(OnDisconnect::Stop.as_str());
        let on_disconnect = if stop { OnDisconnect::Stop } else { OnDisconnect::Keep };
        let grace = get(label::GRACE).and_then(|text| text.parse().ok()).unwrap_or(10);
        let grace = Duration::from_secs(grace);
        Some(Self { handle, pod, assignment, on_disconnect, grace, state, address: String::new() })
    }
}

/// Something may have changed; list to know. Hints only. The default one says that anything may have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hint {
    /// The pod concerned, where the engine says.
    pub pod: Option<PodId>,
    /// A container was made or started, and that is all: no news for whoever did it.
    pub began: bool,
}

/// What a runtime can not do, sorted by what the worker does about it. Each carries the engine's own words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// The image can not be had: wait and try again, slowly.
    #[error("image can not be had: {0}")]
    Image(String),
    /// The engine refuses this container as it is asked for: asking again will not help.
    #[error("the engine refuses the container: {0}")]
    Refused(String),
    /// There is no such container (any more).
    #[error("no such container: {0}")]
    NotFound(String),
    /// The engine does not answer in time or can not be reached: the node's problem, not the pod's.
    #[error("the engine does not answer: {0}")]
    Engine(String),
    /// It failed in another way: try again, slowly.
    #[error("{0}")]
    Failed(String),
}

/// What an engine says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineInfo {
    /// `docker`, `podman`, `process`, `sim`.
    pub runtime: &'static str,
    /// Name and version, for people.
    pub version: String,
}

/// What runs containers. Calls have deadlines of their own and never hang.
pub trait Runtime: Send + Sync + 'static {
    /// Asks the engine whether it is there. Cheap; called with each heartbeat.
    fn ping(&self) -> BoxFuture<'_, Result<EngineInfo, RuntimeError>>;

    /// All containers of this node, whatever their state, found by label. Never another node's.
    fn list<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<Container>, RuntimeError>>;

    /// Makes the image available. Returns at once where it already is.
    fn ensure_image<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Makes the container, or finds the one that was made for the same identity before, and starts it unless it
    /// already runs. Gives what [`Runtime::list`] would show for it.
    fn run<'a>(&'a self, request: &'a ContainerRequest) -> BoxFuture<'a, Result<Container, RuntimeError>>;

    /// Starts an exited container again. Running already is success.
    fn restart<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// SIGTERM, up to `grace`, then SIGKILL; then removes it. Gone already is success.
    fn stop<'a>(&'a self, handle: &'a str, grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// What the container wrote, oldest first: the last `tail` lines, and with `follow` all that comes after,
    /// until the container ends or the stream is dropped.
    fn logs<'a>(
        &'a self,
        handle: &'a str,
        tail: usize,
        follow: bool,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError>>;

    /// Hints that containers of this node changed. The stream ends when the engine hangs up; list, and ask again.
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
    fn pod_and_assignment_decide_the_name_and_nothing_else() {
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
