//! A plan as `POST /plan` takes and shows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use model::ids::{NodeName, PodId, PodName, ServiceName};
use model::node::Resources;
use model::spec::{Cpus, MAX_REPLICAS, Memory, ServiceInput};

/// Changes of the cluster to be planned. Nothing is changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanInput {
    /// They are planned in this order.
    #[schema(max_items = 100)]
    pub changes: Vec<PlanChange>,
}

/// A change; of several fields the upper ones come first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanChange {
    /// A node whose pods move to others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<NodeName>,
    /// Nodes that die at the same time: the name of one, or a selector of their labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "zone=a")]
    pub lose: Option<String>,
    /// Nodes that join.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add_node: Option<NewNodeInput>,
    /// Services and their numbers of pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(schema_with = scales)]
    pub scale: BTreeMap<ServiceName, u32>,
    /// A service that is created or changed, as in `PUT /service/{name}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ServiceInput>)]
    pub put: Option<Value>,
    /// Pods move from fuller nodes to emptier ones, at most so many, as `POST /rebalance` moves them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10000)]
    pub rebalance: Option<u32>,
}

/// How far nodes are balanced.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RebalanceInput {
    /// Pods that move at most; without it 1000. Those whose move is worth most come first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10000)]
    pub max_moves: Option<u32>,
}

fn scales() -> RefOr<Schema> {
    let schema = json!({
        "type": "object",
        "description": "Services and their numbers of pods.",
        "example": {"web": 50},
        "propertyNames": ServiceName::schema(),
        "additionalProperties": {"type": "integer", "minimum": 0, "maximum": MAX_REPLICAS},
    });
    RefOr::T(serde_json::from_value(schema).expect("the schema above is valid"))
}

/// Nodes that are alike, and empty.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewNodeInput {
    /// Cores that each offers to pods.
    pub cpus: Cpus,
    /// Memory that each offers to pods.
    #[schema(example = "32GiB")]
    pub memory: Memory,
    /// Disk that each offers to volumes with a `space`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Memory>,
    /// Pods that each can have; without it as many as the largest node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100000)]
    pub pods: Option<u32>,
    /// Labels of each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// How many of them.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 1000)]
    pub count: u32,
}

fn one() -> u32 {
    1
}

/// The effect of the changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanView {
    /// Whether all pods fit that do not wait for their data.
    pub fits: bool,
    /// Pods that move from a node to another one.
    pub moves: Vec<PlannedPodView>,
    /// Pods that are started: new ones, and those that waited.
    pub starts: Vec<PlannedPodView>,
    /// Pods that are stopped.
    pub stops: Vec<PlannedPodView>,
    /// Pods that fit no other node. Those that fitted none before are not listed.
    pub stuck: Vec<StuckPodView>,
    /// Pods whose data is on a node that does not run them.
    pub waits_for_data: Vec<StuckPodView>,
    /// All nodes, by name.
    pub nodes: Vec<PlannedNodeView>,
    /// Further sentences.
    pub notes: Vec<String>,
}

/// A pod of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlannedPodView {
    /// Unique id of the pod; null for one that is yet to be created.
    pub uuid: Option<PodId>,
    /// Name of the pod.
    pub name: PodName,
    /// Its service; null if it was pushed.
    pub service: Option<ServiceName>,
    /// Index of the pod among the pods of its service.
    pub replica: u32,
    /// The node on which it is; null if on none.
    pub from: Option<NodeName>,
    /// The node on which it is after the changes; null if on none.
    pub to: Option<NodeName>,
}

/// A pod for which there is no node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StuckPodView {
    /// The pod.
    pub pod: PlannedPodView,
    /// Why, in a sentence.
    pub why: String,
    /// The smallest change that would let it run, in a sentence with the command; empty if none is known.
    pub change: String,
}

/// A node before and after the changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlannedNodeView {
    /// Its name.
    pub node: NodeName,
    /// Resources that it offers to pods.
    pub capacity: Resources,
    /// Resources of its pods; null if it is a new node.
    pub before: Option<Resources>,
    /// Resources of its pods after the changes.
    pub after: Resources,
    /// Whether it is dead after the changes.
    pub is_lost: bool,
}
