//! Cluster events: one entry of the `events` stream per change.

use serde::{Deserialize, Serialize};

use crate::RedisMillis;

/// The kind of object that changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    /// A pod, identified by its uuid.
    Pod,
    /// A node.
    Node,
    /// A service.
    Service,
    /// A queue, identified by its key.
    Queue,
    /// The cluster as a whole.
    Cluster,
}

impl ObjectKind {
    pub fn as_str(self) -> &'static str {
        match self {
            ObjectKind::Pod => "pod",
            ObjectKind::Node => "node",
            ObjectKind::Service => "service",
            ObjectKind::Queue => "queue",
            ObjectKind::Cluster => "cluster",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::Pod, Self::Node, Self::Service, Self::Queue, Self::Cluster]
            .into_iter()
            .find(|kind| kind.as_str() == name)
    }
}

/// A change in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ClusterEvent {
    /// Position in the stream: `<Redis milliseconds>-<number>`, with `.<index>` if many pods changed in one
    /// step. Can be sent as `Last-Event-ID`.
    pub id: String,
    /// Time of the change on Redis' clock, in milliseconds since 1970.
    pub at: RedisMillis,
    /// Kind of the object that changed.
    pub kind: ObjectKind,
    /// The object that changed: the uuid of a pod, the key of a queue, otherwise a name.
    pub object: String,
    /// The kind of the event, in one word: `Scheduled`, `Started`, `NodeDead` …
    pub reason: String,
    /// Name of the pod if `object` is a uuid; otherwise empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Node on which it happened; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Phase of the pod after the change; empty for other objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// The event, in a sentence.
    pub message: String,
}

impl ClusterEvent {
    pub fn position(&self) -> Option<EventPosition> {
        EventPosition::parse(&self.id)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventPosition {
    millis: u64,
    number: u64,
    /// Within an entry about many pods; [`EventPosition::END_OF_ENTRY`] is after all of them.
    index: u64,
}

impl EventPosition {
    const END_OF_ENTRY: u64 = u64::MAX;

    /// Parses `<milliseconds>[-<number>[.<index>]]`. Without an index the position is after its whole entry.
    pub fn parse(id: &str) -> Option<Self> {
        let number_of = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| text.parse().ok()).flatten()
        };
        let (millis, rest) = id.split_once('-').unwrap_or((id, "0"));
        let (number, index) = match rest.split_once('.') {
            Some((number, index)) => (number, number_of(index)?),
            None => (rest, Self::END_OF_ENTRY),
        };
        Some(Self { millis: number_of(millis)?, number: number_of(number)?, index })
    }

    /// XRANGE start after this position: `(` excludes the entry.
    pub fn entry_begins(self) -> String {
        let exclusive = if self.index == Self::END_OF_ENTRY { "(" } else { "" };
        format!("{exclusive}{}-{}", self.millis, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_ordered() {
        let position = |id| EventPosition::parse(id).unwrap_or_else(|| panic!("{id} is an id"));
        let ordered = ["0", "9-10", "10-2", "10-9.0", "10-9.2", "10-9.10", "10-9", "10-10.0", "11"];
        assert!(ordered.map(position).is_sorted());
        assert_eq!(position("10"), position("10-0"));
        for bad in ["", "-", "a-1", "1-", "+1-1", "1-1-1", "1-1.", "1-1.x", "1.1", "99999999999999999999-0"] {
            assert_eq!(EventPosition::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn reading_continues_within_an_entry_or_after_it() {
        let start = |id| EventPosition::parse(id).map(EventPosition::entry_begins);
        assert_eq!(start("10-9").as_deref(), Some("(10-9"));
        assert_eq!(start("10-9.3").as_deref(), Some("10-9"));
    }
}
