//! What happened: one entry of the `events` stream for each change of a pod, node, service, or of the cluster itself.

use serde::{Deserialize, Serialize};

use crate::RedisMillis;

/// What kind of thing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    /// A pod; the object is its uuid.
    Pod,
    /// A node.
    Node,
    /// A service.
    Service,
    /// A queue; the object is its key.
    Queue,
    /// The cluster as a whole.
    Cluster,
}

impl ObjectKind {
    /// The word in Redis and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            ObjectKind::Pod => "pod",
            ObjectKind::Node => "node",
            ObjectKind::Service => "service",
            ObjectKind::Queue => "queue",
            ObjectKind::Cluster => "cluster",
        }
    }

    /// Reads the word back.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Pod, Self::Node, Self::Service, Self::Queue, Self::Cluster]
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ClusterEvent {
    /// Place in the stream, `<Redis milliseconds>-<number>`; what `Last-Event-ID` carries.
    pub id: String,
    /// When, on Redis' clock, milliseconds since 1970.
    pub at: RedisMillis,
    /// What kind of thing changed.
    pub kind: ObjectKind,
    /// Which one: a uuid, a name, a key.
    pub object: String,
    /// One word: `Scheduled`, `Started`, `NodeDead` …
    pub reason: String,
    /// The pod's or object's name where the object is a uuid; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The node concerned, if any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The phase the pod is in after the change; empty where none applies.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// The same in a sentence, for people.
    pub message: String,
}
