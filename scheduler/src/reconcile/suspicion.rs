//! Which pods may have lost their payload. Pure.
//!
//! A suspicion is cheap and often wrong; the script that requeues looks at the queues themselves and does nothing
//! when the payload is there.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use common::RedisMillis;
use common::ids::{NodeName, PodId};
use common::lifecycle::Phase;
use common::pod::PodRecord;

/// What is known of the cluster when pods are looked at.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// Redis' time before anything was read.
    pub(crate) now: RedisMillis,
    /// A pod that changed since is left alone.
    pub(crate) patience: Duration,
    /// Whether the queues are short enough for waiting pods to be looked for in them. Long ones explain a wait.
    pub(crate) queues_are_short: bool,
    /// The living nodes, with the pods in their container sets. None when nobody looked: then nothing is suspicious.
    pub(crate) sets: Option<HashMap<NodeName, HashSet<PodId>>>,
}

impl Facts {
    /// Whether the pod has been as it is for long enough to wonder.
    pub(crate) fn is_settled(&self, pod: &PodRecord) -> bool {
        self.now.saturating_sub(pod.since) > self.patience.as_millis() as RedisMillis
    }
}

/// Whether the pod's payload may be in none of the places its phase allows.
pub(crate) fn is_suspicious(pod: &PodRecord, facts: &Facts) -> bool {
    let Some(sets) = &facts.sets else { return false };
    facts.is_settled(pod)
        && match pod.phase {
            Phase::Pending | Phase::Assigned => facts.queues_are_short,
            Phase::Running | Phase::Stopping => {
                let set = pod.node.as_ref().and_then(|node| sets.get(node));
                !set.is_some_and(|set| set.contains(&pod.id))
            }
            Phase::Stopped | Phase::Succeeded | Phase::Failed => false,
        }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::reconcile::plan::testing::record;

    #[test]
    fn the_table() {
        let id = PodId::new("p").unwrap();
        let (here, away) = (NodeName::new("here").unwrap(), NodeName::new("away").unwrap());
        let mut facts = Facts {
            now: 100_000,
            patience: Duration::from_secs(30),
            queues_are_short: true,
            sets: Some(HashMap::from([
                (here.clone(), HashSet::from([id.clone()])),
                (away.clone(), HashSet::new()),
            ])),
        };
        let dead = NodeName::new("dead").unwrap();
        for (phase, node, since, short, expected) in [
            (Phase::Pending, None, 1, true, true),
            (Phase::Pending, None, 1, false, false),
            (Phase::Pending, None, 80_000, true, false),
            (Phase::Assigned, Some(&here), 1, true, true),
            (Phase::Running, Some(&here), 1, true, false),
            (Phase::Running, Some(&away), 1, true, true),
            (Phase::Running, Some(&away), 80_000, true, false),
            (Phase::Running, Some(&dead), 1, false, true),
            (Phase::Running, None, 1, true, true),
            (Phase::Stopping, Some(&dead), 1, true, true),
            (Phase::Stopping, Some(&here), 1, true, false),
            (Phase::Stopped, None, 1, true, false),
            (Phase::Failed, None, 1, true, false),
            (Phase::Succeeded, None, 1, true, false),
        ] {
            facts.queues_are_short = short;
            let mut pod = record("web", 0, 1, phase);
            (pod.id, pod.node, pod.since) = (id.clone(), node.cloned(), since);
            assert_eq!(is_suspicious(&pod, &facts), expected, "{phase} {node:?} {since} {short}");
        }
    }
}
