//! A node as `GET /node` shows it, and its queues.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::drains::DrainOrderView;
use model::ids::NodeName;
use model::node::{NodeKind, NodeState, Psi, Resources};

/// A node and the worker that runs on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    /// Name of the node, unique in the cluster.
    pub name: NodeName,
    /// Whether the node runs kubeleet's worker or an external one.
    pub kind: NodeKind,
    /// Whether the node is alive or was declared dead.
    pub state: NodeState,
    /// Whether the node is alive, its heartbeat is recent and its engine works. A cordoned node can be ready.
    pub ready: bool,
    /// Whether an operator has excluded the node from new assignments.
    pub cordoned: bool,
    /// Whether its pods are being moved to other nodes; null if not. `GET /node/{name}/drain` tells where.
    #[serde(default)]
    pub drain: Option<DrainOrderView>,
    /// Whether the node stops its pods by itself when it is cut off from Redis. External workers do not.
    pub fenceable: bool,
    /// The container engine's last error; null while the engine works.
    pub engine_problem: Option<String>,
    /// The full part of the node's disk: no new pods are placed there; null while there is room.
    pub disk_problem: Option<String>,
    /// Other problems of the node, in sentences: pods run and are placed there nevertheless.
    #[serde(default)]
    pub problems: Vec<String>,
    /// Labels of the node: those of `KUBELEET_LABELS` of its worker, and over them those of an operator.
    pub labels: BTreeMap<String, String>,
    /// Container runtime: `docker`, `process` or `sim`; empty for an external worker.
    pub runtime: String,
    /// Name and version that the container engine reports.
    pub engine_version: String,
    /// The lasting id of the container engine, which the node's volumes belong to; null if it has none.
    pub engine_id: Option<String>,
    /// Version of kubeleet on the node.
    pub version: String,
    /// The directory for shared volumes: `ready`, or why no pod with one is placed here; null if the node has
    /// none.
    pub shared_volumes: Option<String>,
    /// Resources that the node offers to pods: those of its machine, less `reserved`.
    pub capacity: Resources,
    /// The part of the machine that is kept for the system.
    #[serde(default)]
    pub reserved: Resources,
    /// Resources reserved for the pods assigned to the node.
    pub used: Resources,
    /// The host ports in use, such as `8080/tcp`, each with the name of its pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host_ports: BTreeMap<String, String>,
    /// Named resources that the node's operator has declared, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, NamedResourceView>,
    /// Pressure at the last heartbeat; null if the node's kernel does not report it.
    pub psi: Option<Psi>,
    /// When the node last sent a heartbeat.
    pub last_heartbeat: String,
    /// When the node's worker last registered.
    pub registered_at: String,
    /// When a worker first registered under this name.
    #[serde(default)]
    pub created_at: String,
    /// Lengths of the node's queues.
    pub queues: NodeQueuesView,
}

/// A named resource of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamedResourceView {
    /// The ids that the node offers, in the order in which pods get them.
    pub ids: Vec<String>,
    /// The ids that pods have, each with the name of its pod. The node may not offer one of them any more.
    pub used: BTreeMap<String, String>,
}

/// Changes of a node's labels: a text sets a label, null removes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct NodeLabelsPatch(pub BTreeMap<String, Option<String>>);

/// Lengths of a node's queues and of its set of running pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeQueuesView {
    /// Length of `pq:<node>`: pods that the node has not claimed yet.
    pub pending: u64,
    /// Length of `rq:<node>`: pods that the node is starting.
    pub starting: u64,
    /// Size of `cs:<node>`: pods that the node runs.
    pub running: u64,
}
