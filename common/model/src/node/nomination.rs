//! Room on a node that is kept for a pod, for which pods of a lower priority are stopped there.
//!
//! Tests: beside the code, scripts::preemption

use serde::{Deserialize, Serialize};

use crate::RedisMillis;
use crate::ids::PodId;
use crate::node::resources::{Resource, Resources};

/// The field `nominated` of `node:<name>`. It ends by itself, and no sum counts it: `assign` subtracts it
/// from what is free for other pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nomination {
    pub pod: PodId,
    pub since: RedisMillis,
    pub until: RedisMillis,
    /// With the pod's slot.
    pub request: Resources,
}

impl Nomination {
    /// A nomination that begins in the future is over: a former master whose clock was ahead wrote it.
    pub fn holds(&self, now: RedisMillis) -> bool {
        self.since <= now && now < self.until
    }

    /// "<uuid> <since> <until> <cpu> <memory> <pids> <disk>"; unreadable text is none.
    pub fn from_stored(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let pod = PodId::new(words.next()?).ok()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        let (since, until) = (number()?, number()?);
        let mut request = Resources { pods: 1, ..Resources::default() };
        for resource in Resource::ALL {
            *request.get_mut(resource) = number()?;
        }
        Some(Self { pod, since, until, request })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_nomination_is_read_and_holds_for_its_time() {
        let found = Nomination::from_stored("p-1 100 200 500 64 0 7").unwrap();
        let request = Resources { cpu_millis: 500, memory_bytes: 64, pids: 0, disk_bytes: 7, pods: 1 };
        assert_eq!(found, Nomination { pod: PodId::new("p-1").unwrap(), since: 100, until: 200, request });
        assert_eq!([99, 100, 199, 200].map(|now| found.holds(now)), [false, true, true, false]);
        for wrong in ["", "p-1", "p-1 1 2", "p-1 1 2 3 4 5 x", "p 1 1 2 -3 4 5 6", " 1 2 3 4 5 6"] {
            assert_eq!(Nomination::from_stored(wrong), None, "{wrong:?}");
        }
    }
}
