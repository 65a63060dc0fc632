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
    /// Place in the stream, `<Redis milliseconds>-<number>`, with `.<index>` where many pods changed in one step; what
    /// `Last-Event-ID` carries.
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

impl ClusterEvent {
    /// Where it stands; none for an id that Redis did not give.
    pub fn place(&self) -> Option<EventPlace> {
        EventPlace::parse(&self.id)
    }
}

/// Where an event stands in the stream. Later events are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventPlace {
    millis: u64,
    number: u64,
    /// Within an entry that tells of many pods; [`EventPlace::END`] is after all of them.
    index: u64,
}

impl EventPlace {
    const END: u64 = u64::MAX;

    /// Reads `<milliseconds>[-<number>[.<index>]]`; none when it is no such id. Without an index it is the end of its
    /// entry.
    pub fn parse(id: &str) -> Option<Self> {
        let number_of = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| text.parse().ok()).flatten()
        };
        let (millis, rest) = id.split_once('-').unwrap_or((id, "0"));
        let (number, index) = match rest.split_once('.') {
            Some((number, index)) => (number, number_of(index)?),
            None => (rest, Self::END),
        };
        Some(Self { millis: number_of(millis)?, number: number_of(number)?, index })
    }

    /// From where Redis must be read to find what comes after this place.
    pub(crate) fn entry_begins(self) -> String {
        let passed = if self.index == Self::END { "(" } else { "" };
        format!("{passed}{}-{}", self.millis, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_an_order() {
        let place = |id| EventPlace::parse(id).unwrap_or_else(|| panic!("{id} is an id"));
        let ordered = ["0", "9-10", "10-2", "10-9.0", "10-9.2", "10-9.10", "10-9", "10-10.0", "11"];
        assert!(ordered.map(place).is_sorted());
        assert_eq!(place("10"), place("10-0"));
        for bad in ["", "-", "a-1", "1-", "+1-1", "1-1-1", "1-1.", "1-1.x", "1.1", "99999999999999999999-0"] {
            assert_eq!(EventPlace::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_follows_is_read_from_the_same_entry_or_after_it() {
        let begins = |id| EventPlace::parse(id).map(EventPlace::entry_begins);
        assert_eq!(begins("10-9").as_deref(), Some("(10-9"));
        assert_eq!(begins("10-9.3").as_deref(), Some("10-9"));
    }
}
