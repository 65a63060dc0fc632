//! Moves: planned replacements of pods by pods of the same replica on another node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::RedisMillis;
use crate::ids::{NodeName, PodId};

/// In force while the pod is on a node that is being drained, or that violates a constraint of the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    pub pod: PodId,
    /// Where the replica's next pod goes, unless that node refuses it by then.
    pub to: NodeName,
    /// In force until then in any case: a rebalance ends, whatever became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<RedisMillis>,
}

/// Of one service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Moves {
    /// As stored: names this state.
    text: String,
    by_replica: BTreeMap<u32, Move>,
}

impl Moves {
    pub fn of(by_replica: BTreeMap<u32, Move>) -> Self {
        let is_empty = by_replica.is_empty();
        let text = serde_json::to_string(&by_replica).expect("numbers and names serialize");
        Self { text: if is_empty { String::new() } else { text }, by_replica }
    }

    /// Unreadable ones are none.
    pub fn from_stored(text: String) -> Self {
        let by_replica = serde_json::from_str(&text).unwrap_or_default();
        Self { text, by_replica }
    }

    /// Empty if there are none.
    pub fn as_stored(&self) -> &str {
        &self.text
    }

    pub fn by_replica(&self) -> &BTreeMap<u32, Move> {
        &self.by_replica
    }

    pub fn is_empty(&self) -> bool {
        self.by_replica.is_empty()
    }

    /// Where this pod of the replica is to be placed; `None` for the one that is moved.
    pub fn target_of(&self, replica: u32, pod: &PodId) -> Option<&NodeName> {
        self.by_replica.get(&replica).filter(|one| one.pod != *pod).map(|one| &one.to)
    }

    pub fn of_pod(&self, replica: u32, pod: &PodId) -> Option<&Move> {
        self.by_replica.get(&replica).filter(|one| one.pod == *pod)
    }

    pub fn is_moved(&self, pod: &PodId) -> bool {
        self.by_replica.values().any(|one| one.pod == *pod)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn moves_are_read_as_they_were_stored_and_nonsense_is_none() {
        let one = Move { pod: PodId::new("a").unwrap(), to: NodeName::new("w2").unwrap(), until: None };
        let moves = Moves::of(BTreeMap::from([(3, one)]));
        assert_eq!(moves.as_stored(), r#"{"3":{"pod":"a","to":"w2"}}"#);
        assert_eq!(Moves::from_stored(moves.as_stored().to_owned()), moves);
        let target = |replica, pod: &str| moves.target_of(replica, &PodId::new(pod).unwrap());
        assert_eq!(target(3, "b").map(NodeName::as_str), Some("w2"));
        assert_eq!((target(3, "a"), target(2, "b")), (None, None));
        assert_eq!(Moves::of(BTreeMap::new()), Moves::default());
        for text in ["", "x", "[]", r#"{"x":1}"#] {
            let moves = Moves::from_stored(text.to_owned());
            assert!(moves.is_empty() && moves.as_stored() == text, "{text}");
        }
    }
}
