//! Nodes: the worker's registration and the cluster's record.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::RedisMillis;
use crate::ids::{Incarnation, NodeName, PodId, ResourceId, ResourceName, ServiceName};
use crate::node::drain::Drain;
use crate::node::host_access::HostAccess;
use crate::node::named_resources::{self, ResourceIds};
use crate::node::nomination::Nomination;
use crate::node::resources::Resources;
use crate::node::timing::Timing;
use crate::spec::NamedRequest;

/// Pressure stall information (`avg10`): the percentage of the last ten seconds in which tasks waited.
/// See <https://docs.kernel.org/accounting/psi.html>.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Psi {
    /// At least one task waited for a CPU.
    pub cpu_some: f32,
    /// At least one task waited for memory.
    pub memory_some: f32,
    /// All tasks waited for memory.
    pub memory_full: f32,
    /// At least one task waited for I/O.
    pub io_some: f32,
    /// All tasks waited for I/O.
    pub io_full: f32,
}

/// Whether a node is alive from the cluster's point of view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Not declared dead: its heartbeat is recent, or no scheduler has acted on its silence yet.
    Alive,
    /// Declared dead: its pods are being returned to the queue, or have been.
    Dead,
}

impl NodeState {
    pub fn as_str(self) -> &'static str {
        match self {
            NodeState::Alive => "alive",
            NodeState::Dead => "dead",
        }
    }
}

/// The kind of worker that serves a node's queues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// kubeleet's own worker.
    #[default]
    Kubeleet,
    /// Another program that writes `hb:<worker>` and serves the node's queues. It cannot be fenced, and it
    /// cannot be made to stop a pod. Serialized as `"guest"`.
    #[serde(rename = "guest")]
    External,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// Of a read record, with those of an operator.
    pub labels: BTreeMap<String, String>,
    /// Without those kept for the system.
    pub capacity: Resources,
    #[serde(default)]
    pub reserved: Resources,
    /// `docker`, `process` or `sim`.
    pub runtime: String,
    pub engine_version: String,
    /// It changes with the machine or a new setup; may be empty.
    #[serde(default)]
    pub engine_id: String,
    pub version: String,
    /// External workers have none.
    pub settings: Option<NodeSettings>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeSettings {
    /// Id of the key.
    pub secret_key: Option<String>,
    pub host: HostAccess,
    /// The newest form of specifications that its worker reads; 0 means one before forms were told.
    pub forms: u32,
    /// The ids of named resources that it offers.
    #[serde(skip_serializing_if = "ResourceIds::is_empty")]
    pub resources: ResourceIds,
}

impl NodeSettings {
    /// With the session: another one's settings do not count.
    pub fn to_stored(&self, session: &Incarnation) -> String {
        let settings = serde_json::to_string(self).expect("texts and lists serialize");
        format!("{session} {settings}")
    }

    pub fn from_stored(text: &str, session: &Incarnation) -> Option<Self> {
        let (of, settings) = text.split_once(' ')?;
        serde_json::from_str(settings).ok().filter(|_| of == session.to_string())
    }
}

impl Node {
    /// An empty node that registers at this time, without a worker's session.
    pub fn new(name: NodeName, facts: NodeInfo, now: RedisMillis) -> Self {
        Self {
            name,
            kind: NodeKind::Kubeleet,
            state: NodeState::Alive,
            incarnation: None,
            beat: now,
            timing: None,
            registered_at: now,
            created_at: now,
            cordoned: false,
            drain: None,
            engine_problem: None,
            disk_problem: None,
            problems: Vec::new(),
            held_pods: Vec::new(),
            facts,
            shared_volumes: None,
            used: Resources::default(),
            host_ports: BTreeMap::new(),
            given_ids: BTreeMap::new(),
            labels_revision: 0,
            nomination: None,
            psi: None,
        }
    }

    /// Its label `zone`, or "".
    pub fn zone(&self) -> &str {
        self.facts.labels.get("zone").map_or("", String::as_str)
    }

    /// Ids of named resources; none of an external worker.
    pub fn offered_ids(&self) -> &ResourceIds {
        static NONE: ResourceIds = ResourceIds::NONE;
        self.facts.settings.as_ref().map_or(&NONE, |settings| &settings.resources)
    }

    /// The pod for which room is kept now, and how much.
    pub fn nominated(&self, now: RedisMillis) -> Option<&Nomination> {
        self.nomination.as_ref().filter(|nomination| nomination.holds(now))
    }

    /// The room that is kept for a pod counts as used. Returns the pod.
    pub fn keep_room(&mut self, now: RedisMillis) -> Option<PodId> {
        let Nomination { pod, request, .. } = self.nominated(now)?.clone();
        self.used = self.used.saturating_add(request);
        Some(pod)
    }

    /// In the order in which they are given away.
    pub fn free_ids<'a>(&'a self, name: &'a ResourceName) -> impl Iterator<Item = &'a ResourceId> {
        let is_free = |id: &&ResourceId| !self.given_ids.contains_key(&named_resources::key(name, id));
        self.offered_ids().of(name).iter().filter(is_free)
    }

    /// Frees the ids of a pod that leaves. Pods of one name are interchangeable.
    pub fn take_back_ids(&mut self, request: &NamedRequest, pod: &str) {
        for (name, count) in request.iter() {
            let is_its = |(key, holder): &(&String, &String)| {
                key.split_once('/').is_some_and(|(of, _)| of == name.as_str()) && *holder == pod
            };
            let given = self.given_ids.iter().filter(is_its).map(|(key, _)| key.clone());
            let given: Vec<String> = given.take(usize::try_from(count).unwrap_or(usize::MAX)).collect();
            given.iter().for_each(|key| drop(self.given_ids.remove(key)));
        }
    }

    /// Assigns free ids to a pod, as `assign` does.
    pub fn give_ids(&mut self, request: &NamedRequest, pod: &str) {
        for (name, count) in request.iter() {
            let given = self.free_ids(name).take(usize::try_from(count).unwrap_or(usize::MAX));
            let given: Vec<String> = given.map(|id| named_resources::key(name, id)).collect();
            self.given_ids.extend(given.into_iter().map(|key| (key, pod.to_owned())));
        }
    }
}

impl NodeInfo {
    /// Two of its pods cannot listen on the same port.
    pub fn runtime_has_machine_ports(runtime: &str) -> bool {
        runtime == "process"
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedVolumesState {
    Ready,
    /// Another directory, or an unusable one: the reason.
    Refused(String),
}

impl SharedVolumesState {
    /// `ready`, or the reason.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Ready => "ready",
            Self::Refused(why) => why,
        }
    }

    pub fn from_text(text: String) -> Option<Self> {
        match text.as_str() {
            "" => None,
            "ready" => Some(Self::Ready),
            _ => Some(Self::Refused(text)),
        }
    }
}

/// A pod without a record, whose container a node keeps. No other pod may start in its slot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HeldPod {
    pub service: ServiceName,
    pub replica: u32,
    pub pod: PodId,
}

impl HeldPod {
    pub fn to_line(&self) -> String {
        format!("{} {} {}", self.service, self.replica, self.pod)
    }

    pub fn from_line(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let service = ServiceName::new(words.next()?).ok()?;
        Some(Self { service, replica: words.next()?.parse().ok()?, pod: PodId::new(words.next()?).ok()? })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub name: NodeName,
    pub kind: NodeKind,
    pub state: NodeState,
    /// `None` for an external worker.
    pub incarnation: Option<Incarnation>,
    pub beat: RedisMillis,
    /// External workers have none.
    pub timing: Option<Timing>,
    pub registered_at: RedisMillis,
    /// First registration under this name.
    #[serde(default)]
    pub created_at: RedisMillis,
    /// By an operator: no new assignments.
    pub cordoned: bool,
    #[serde(default)]
    pub drain: Option<Drain>,
    pub engine_problem: Option<String>,
    /// A sentence; `None` while there is room.
    pub disk_problem: Option<String>,
    /// Pods still run and are placed there.
    #[serde(default)]
    pub problems: Vec<String>,
    #[serde(default)]
    pub held_pods: Vec<HeldPod>,
    pub facts: NodeInfo,
    /// `None` if it declares no directory.
    pub shared_volumes: Option<SharedVolumesState>,
    pub used: Resources,
    /// `8080/tcp`, with the name of its pod.
    #[serde(default)]
    pub host_ports: BTreeMap<String, String>,
    /// By id of a named resource, `gpu/0`: the name of its pod. The node may offer the id no more.
    #[serde(default)]
    pub given_ids: BTreeMap<String, String>,
    /// Every change of a label raises it.
    #[serde(default)]
    pub labels_revision: u64,
    /// It may be over; see [`Nomination::holds`].
    #[serde(default)]
    pub nomination: Option<Nomination>,
    /// `None` if the kernel does not report it.
    pub psi: Option<Psi>,
}
