//! The order to drain a node: its pods are moved to other nodes.

use serde::{Deserialize, Serialize};

use crate::RedisMillis;

/// The field `drain` of `node:<name>`; the node is cordoned, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// Names this order: a later one may have the same times.
    pub id: String,
    pub at: RedisMillis,
    /// Pods that are left then are stopped; `None` to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<RedisMillis>,
    /// At the deadline, also those whose data is on the node.
    #[serde(default)]
    pub stop_bound: bool,
}

impl Drain {
    /// If a former master's clock was ahead, it takes longer: nothing is stopped too early.
    pub fn is_over(&self, now: RedisMillis) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Unreadable text orders nothing.
    pub fn from_stored(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_is_over_at_its_deadline_if_it_has_one() {
        let drain = |at, deadline| Drain { id: "a".to_owned(), at, deadline, stop_bound: false };
        for (drain, now, expected) in [
            (drain(10, Some(20)), 19, false),
            (drain(10, Some(20)), 20, true),
            (drain(10, None), 1_000, false),
            (drain(3_600_000, Some(3_600_010)), 20, false),
        ] {
            assert_eq!(drain.is_over(now), expected, "{drain:?} at {now}");
        }
        assert_eq!(Drain::from_stored("yes"), None);
    }
}
