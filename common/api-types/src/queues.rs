//! Queues, their payloads and dead letters.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use model::ids::NodeName;

/// Lengths of all queues.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueuesView {
    /// Length of `sq`: pods that wait for a scheduler.
    pub waiting: u64,
    /// Pods that schedulers have taken from `sq` and not assigned yet.
    pub in_flight: u64,
    /// Pods that fit no node at the moment.
    pub unschedulable: u64,
    /// Length of `dq`: dead letters.
    pub dead: u64,
    /// Queues of each node.
    pub nodes: Vec<QueuesOfNode>,
}

/// Lengths of one node's queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueuesOfNode {
    /// Name of the node.
    pub node: NodeName,
    /// Length of `pq:<node>`: pods that the node has not claimed yet.
    pub pending: u64,
    /// Length of `rq:<node>`: pods that the node is starting.
    pub starting: u64,
    /// Size of `cs:<node>`: pods that the node runs.
    pub running: u64,
}

/// The first payloads of one queue, in the order in which they will be taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueView {
    /// Key of the queue in Redis.
    #[schema(example = "pq:worker1")]
    pub queue: String,
    /// First payloads of the queue. Of a set (`cs:<node>`, `uq`), some payloads in no particular order.
    pub items: Vec<QueueItem>,
    /// How many more exist within the limit, and were left out: all payloads of a response have at most 4
    /// MiB.
    #[serde(default)]
    pub left_out: u64,
}

/// A payload in a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueItem {
    /// The payload, byte for byte.
    pub payload: String,
    /// `base64` if the payload is not UTF-8 and is therefore encoded; otherwise absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// The bytes of the whole payload, if `payload` is only its first KiB: no process takes one of more than
    /// 512 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Why the pod fits no node; only in `uq`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A dead letter: a payload that could not become a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterView {
    /// Id of the dead letter; it does not change while the dead letter exists.
    pub id: String,
    /// Queue that the payload was taken from.
    pub queue: String,
    /// The payload, byte for byte; of one of more than 512 KiB only the first KiB.
    pub payload: String,
    /// `base64` if the payload is not UTF-8 and is therefore encoded; otherwise absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// Why the payload was rejected.
    pub reason: String,
    /// When the payload was rejected.
    pub at: String,
}
