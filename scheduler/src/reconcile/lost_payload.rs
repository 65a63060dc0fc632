//! Whether a pod may have lost its payload. Cheap and often wrong: the script `pod_requeue` searches the
//! queues.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use model::RedisMillis;
use model::ids::{NodeName, PodId, ServiceName};
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;

use super::lost_pods::HeldReplicas;
use super::slots::{ReplicaSlot, pods};
use super::violations::SeenNodes;

/// Read one part after the other: no snapshot.
#[derive(Debug, Clone, Default)]
pub(crate) struct ObservedState {
    /// Read first.
    pub(crate) now: RedisMillis,
    /// Younger records may contradict each other.
    pub(crate) settle_time: Duration,
    /// Otherwise pods wait for long.
    pub(crate) queues_are_short: bool,
    /// Without unreadable sets. `None` if not read: then no pod is a suspect.
    pub(crate) container_sets: Option<HashMap<NodeName, HashSet<PodId>>>,
    /// In the sets and queues of live nodes; `None` for pushed pods.
    pub(crate) on_nodes: HashMap<Option<ServiceName>, BTreeSet<PodId>>,
    pub(crate) has_unreadable_nodes: bool,
    /// Nodes whose pods share the machine's ports; `None` if not read.
    pub(crate) with_machine_ports: Option<HashSet<NodeName>>,
    /// `None` if not read.
    pub(crate) nodes: Option<Arc<SeenNodes>>,
    pub(crate) held: HeldReplicas,
}

impl ObservedState {
    pub(crate) fn is_settled(&self, pod: &PodRecord) -> bool {
        // A time far ahead comes from a former master: it was long ago.
        self.now.abs_diff(pod.since) > self.settle_time.as_millis() as RedisMillis
    }
}

pub(crate) fn may_have_lost_payload(pod: &PodRecord, observed: &ObservedState) -> bool {
    let Some(container_sets) = &observed.container_sets else { return false };
    observed.is_settled(pod)
        && match pod.phase {
            Phase::Pending | Phase::Assigned => observed.queues_are_short,
            Phase::Running | Phase::Stopping => {
                let set = pod.node.as_ref().and_then(|node| container_sets.get(node));
                set.is_none_or(|set| !set.contains(&pod.id))
            }
            Phase::Stopped | Phase::Succeeded | Phase::Failed => false,
        }
}

pub(super) fn suspects(slots: &[ReplicaSlot], observed: &ObservedState) -> Vec<PodRecord> {
    let suspects = pods(slots).filter(|(_, pod)| may_have_lost_payload(pod, observed));
    suspects.map(|(_, pod)| pod.clone()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::reconcile::plan::testing::record;

    #[test]
    fn suspects_by_phase_node_age_and_queue_length() {
        let id = PodId::new("p").unwrap();
        let here = NodeName::new("here").unwrap();
        let away = NodeName::new("away").unwrap();
        let mut observed = ObservedState {
            now: 100_000,
            settle_time: Duration::from_secs(30),
            queues_are_short: true,
            container_sets: Some(HashMap::from([
                (here.clone(), HashSet::from([id.clone()])),
                (away.clone(), HashSet::new()),
            ])),
            on_nodes: HashMap::new(),
            has_unreadable_nodes: false,
            with_machine_ports: None,
            nodes: None,
            held: HashMap::new(),
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
            observed.queues_are_short = short;
            let mut pod = record("web", 0, 1, phase);
            pod.id = id.clone();
            pod.node = node.cloned();
            pod.since = since;
            assert_eq!(may_have_lost_payload(&pod, &observed), expected, "{phase} {node:?} {since} {short}");
        }
    }
}
