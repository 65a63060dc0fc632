//! The drain of a node as `GET /node/{name}/drain` shows it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use model::ids::{NodeName, PodId, PodName, ServiceName};
use model::pod::lifecycle::Phase;

/// When a drain was asked for, and when it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainOrderView {
    /// When an operator asked for it.
    pub since: String,
    /// When pods that are left are stopped; null if it waits for ever.
    pub deadline: Option<String>,
}

/// The pods of a node that is being drained, or what a drain would do with them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DrainView {
    /// Name of the node.
    pub node: NodeName,
    /// Null if the node is not being drained: then the pods are shown as if it were.
    pub order: Option<DrainOrderView>,
    /// Pods that run on the node or are about to, in the order in which they would leave.
    pub pods: Vec<LeavingPodView>,
}

/// A pod of a node that is being drained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LeavingPodView {
    /// Unique id of the pod.
    pub uuid: PodId,
    /// Name of the pod.
    pub name: PodName,
    /// Its service; null if it was pushed.
    pub service: Option<ServiceName>,
    /// Index of the pod among the pods of its service.
    pub replica: u32,
    /// Phase of the pod's life cycle.
    pub phase: Phase,
    /// The node to which it moves; null if it stays.
    pub to: Option<NodeName>,
    /// Why it stays, in a sentence; empty if it moves.
    pub stays: String,
    /// Whether its data is on the node, so that no other node could start it.
    pub is_bound: bool,
    /// Whether its service is global: it moves nowhere, and is stopped when all others are gone.
    #[serde(default)]
    pub is_global: bool,
}
