//! Conditions that several processes observe, announced by one event.

use redis::cmd;

use crate::reply::word;
use crate::scripts::note_condition;
use crate::{Store, StoreError, keys};
use model::RedisMillis;
use model::ids::NodeName;

const VIOLATIONS_HELD: &str = "violations_held";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservedCondition<'a> {
    MassLoss {
        is_on: bool,
    },
    WriteOutage {
        since: RedisMillis,
    },
    /// Pods violate constraints, and none moves; with an empty message they may move again.
    ViolationsHeld,
    ProxyGone {
        node: &'a NodeName,
        is_on: bool,
    },
}

impl Store {
    /// Returns false if another process has announced it.
    pub async fn note_condition(
        &self,
        condition: ObservedCondition<'_>,
        message: &str,
    ) -> Result<bool, StoreError> {
        let on = |is_on| if is_on { "1" } else { "" };
        let (holder_key, word_of, is_on, since, object) = match condition {
            ObservedCondition::MassLoss { is_on } => {
                (keys::META.to_owned(), "mass_loss", on(is_on), 0, "nodes")
            }
            ObservedCondition::WriteOutage { since } => {
                (keys::META.to_owned(), "write_outage", "", since, "redis")
            }
            ObservedCondition::ViolationsHeld => {
                (keys::META.to_owned(), VIOLATIONS_HELD, message, 0, "nodes")
            }
            ObservedCondition::ProxyGone { node, is_on } => {
                (keys::node(node), "proxy_gone", on(is_on), 0, node.as_str())
            }
        };
        let call =
            note_condition::Head { holder_key, condition: word_of, is_on, since, object, message }.call();
        Ok(word("telling a condition", self.link.script(&call).await?)? == "OK")
    }

    /// Why pods that violate the constraints of their services are not moved.
    pub async fn held_violations(&self) -> Result<Option<String>, StoreError> {
        self.link.query(cmd("HGET").arg(keys::META).arg(VIOLATIONS_HELD)).await
    }
}
