//! Requests for containers, and containers as an engine lists them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use model::ids::{AssignmentId, ClusterId, ContainerName, NodeName, PodId, PodName, ServiceName};
use model::network::ContainerNetwork;
use model::node::ResourceIds;
use model::pod::payload::Payload;
use model::spec::{ContainerSpec, OnDisconnect, PodSpec};
use sha2::{Digest, Sha256};

use crate::label;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub node: NodeName,
    pub cluster: Option<ClusterId>,
    pub pod: PodId,
    pub name: PodName,
    pub service: Option<ServiceName>,
    pub replica: u32,
    pub assignment: AssignmentId,
    /// `None` for the only container of a pod, or the sandbox of several.
    pub container: Option<ContainerName>,
    pub on_disconnect: OnDisconnect,
    pub grace: Duration,
    /// That the pod was given.
    pub resources: ResourceIds,
}

impl Identity {
    pub fn of_pod(
        (cluster, node): (Option<ClusterId>, &NodeName),
        (payload, spec): (&Payload, &PodSpec),
        service: Option<&ServiceName>,
        assignment: &AssignmentId,
    ) -> Self {
        Self {
            node: node.clone(),
            cluster,
            pod: payload.id.clone(),
            name: payload.name.clone(),
            service: service.cloned(),
            replica: payload.replica,
            assignment: assignment.clone(),
            container: None,
            on_disconnect: spec.on_disconnect,
            grace: spec.grace(),
            resources: ResourceIds::default(),
        }
    }

    /// Creating twice yields one container: the hash covers pod and assignment.
    pub fn container_name(&self) -> String {
        let mut hasher = Sha256::new();
        hasher.update(self.pod.as_str());
        hasher.update([0]);
        hasher.update(self.assignment.as_str());
        let digest = hasher.finalize();
        let hash = digest.iter().take(5).fold(0_u64, |hash, byte| hash << 8 | u64::from(*byte));
        let container = self.container.as_ref().map_or_else(String::new, |name| format!("-{name}"));
        format!("{}-{}-{hash:010x}{container}", self.name, self.replica)
    }

    pub fn labels(&self) -> BTreeMap<&'static str, String> {
        let service = self.service.as_ref().map_or(self.name.as_str(), |service| service.as_str());
        let cluster = self.cluster.as_ref().map(|cluster| (label::CLUSTER, cluster.to_string()));
        let container = self.container.as_ref().map(|name| (label::CONTAINER, name.to_string()));
        let resources = (!self.resources.is_empty()).then(|| (label::RESOURCES, self.resources.to_string()));
        let labels = BTreeMap::from([
            (label::ORCHESTRATOR, "kubeleet".to_owned()),
            (label::NODE, self.node.to_string()),
            (label::POD, self.pod.to_string()),
            (label::SERVICE, service.to_owned()),
            (label::ASSIGNMENT, self.assignment.to_string()),
            (label::ON_DISCONNECT, self.on_disconnect.as_str().to_owned()),
            (label::GRACE, self.grace.as_secs().to_string()),
        ]);
        labels.into_iter().chain(cluster).chain(container).chain(resources).collect()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ContainerRequest {
    pub identity: Identity,
    pub container: ContainerSpec,
    pub sandbox: Option<String>,
    pub files: Vec<MountedFile>,
    /// By source, for the persistent volumes that it creates.
    pub volume_epochs: BTreeMap<String, u64>,
}

impl ContainerRequest {
    pub fn new(identity: Identity, container: ContainerSpec) -> Self {
        Self { identity, container, sandbox: None, files: Vec::new(), volume_epochs: BTreeMap::new() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountedFile {
    /// On the worker's machine.
    pub source: PathBuf,
    /// In the container.
    pub target: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerState {
    Created,
    Running,
    Exited {
        /// 128 + n for signal n.
        code: i64,
        out_of_memory: bool,
    },
    /// Its inspection failed, or kubeleet does not know the state. It may run.
    Unknown,
}

impl ContainerState {
    /// `Created` too may run soon.
    pub fn may_run(self) -> bool {
        !matches!(self, Self::Exited { .. })
    }
}

/// Most fields come from its labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub handle: String,
    pub cluster: Option<ClusterId>,
    pub pod: PodId,
    pub assignment: AssignmentId,
    /// `None` for a pod's only container or its sandbox.
    pub name: Option<ContainerName>,
    pub on_disconnect: OnDisconnect,
    pub grace: Duration,
    pub resources: ResourceIds,
    pub state: ContainerState,
    /// By another client of the engine. Its state is still running.
    pub is_paused: bool,
    /// `None` if the engine does not report it.
    pub network: Option<ContainerNetwork>,
}

pub type PodKey = (PodId, AssignmentId);

impl Container {
    pub fn key(&self) -> PodKey {
        (self.pod.clone(), self.assignment.clone())
    }

    pub fn new(handle: String, identity: &Identity, state: ContainerState) -> Self {
        Self {
            handle,
            cluster: identity.cluster.clone(),
            pod: identity.pod.clone(),
            assignment: identity.assignment.clone(),
            name: identity.container.clone(),
            on_disconnect: identity.on_disconnect,
            grace: identity.grace,
            resources: identity.resources.clone(),
            state,
            is_paused: false,
            network: None,
        }
    }

    pub fn is_of(&self, cluster: Option<&ClusterId>) -> bool {
        self.cluster.is_some() && self.cluster.as_ref() == cluster
    }

    pub fn from_labels<'a>(
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
        let name = get(label::CONTAINER).and_then(|text| ContainerName::new(text).ok());
        let stop = get(label::ON_DISCONNECT) == Some(OnDisconnect::Stop.as_str());
        let on_disconnect = if stop { OnDisconnect::Stop } else { OnDisconnect::Keep };
        let grace = get(label::GRACE).and_then(|text| text.parse().ok()).unwrap_or(10);
        Some(Self {
            handle,
            cluster,
            pod,
            assignment,
            name,
            on_disconnect,
            grace: Duration::from_secs(grace),
            resources: get(label::RESOURCES).map(ResourceIds::from_text).unwrap_or_default(),
            state,
            is_paused: false,
            network: None,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::testing;

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
    fn one_of_several_containers_is_named_after_its_pod() {
        let pod = testing::identity("node", "pod", "assignment");
        let container = ContainerName::new("cache").unwrap();
        let resources = ResourceIds::from_text("gpu/1 slots/3");
        let one = Identity { container: Some(container.clone()), resources, ..pod.clone() };
        assert_eq!(one.container_name(), format!("{}-cache", pod.container_name()));
        let labels = one.labels();
        assert_eq!(labels["kubeleet.container"], "cache");
        assert_eq!(labels["kubeleet.resources"], "gpu/1 slots/3");
        let get = |key: &str| labels.get(key).map(String::as_str);
        let found = Container::from_labels("h".into(), get, ContainerState::Created).unwrap();
        assert_eq!(found, Container::new("h".into(), &one, ContainerState::Created));
        assert_eq!(found.name, Some(container));
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
