//! Sums of a full pass: usage per node, and used specifications.

use std::collections::{BTreeSet, HashMap, HashSet};

use model::ids::{NodeName, PodId, ServiceName, SpecId};
use model::node::{Resource, Resources};
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use store::{HolderCorrection, NodeUsage};

use super::slots::{ReplicaSlot, SlotHolder};

#[derive(Debug, Default)]
pub(crate) struct PassSums {
    pub(crate) suspects: Vec<PodRecord>,
    used: HashMap<NodeName, Resources>,
    /// Uuid and name, by what they have: see [`NodeUsage::held`].
    holders: HashMap<NodeName, HashMap<String, Vec<String>>>,
    specs: HashSet<SpecId>,
    /// Counted; their records name another service, where they may be met again.
    strays: HashSet<PodId>,
    /// Counted; one may be removed within the pass.
    pub(crate) services: HashSet<ServiceName>,
    /// The sums are too small.
    pub(crate) is_incomplete: bool,
}

/// The difference of a node's usage from the records of its pods.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Drift {
    pub(crate) used: [i64; 1 + Resource::ALL.len()],
    pub(crate) held: Vec<HolderCorrection>,
}

impl PassSums {
    pub(crate) fn add(&mut self, pod: &PodRecord) {
        if self.strays.contains(&pod.id) {
            return;
        }
        self.specs.extend(pod.spec.clone());
        let reserves = matches!(pod.phase, Phase::Assigned | Phase::Running | Phase::Stopping);
        let Some(node) = pod.node.clone().filter(|_| reserves) else { return };
        let ports = pod.host_ports.split_ascii_whitespace().map(|port| format!("port:{port}"));
        for field in ports.chain(pod.resource_ids.keys().map(|id| format!("id:{id}"))) {
            let of_node = self.holders.entry(node.clone()).or_default();
            of_node.entry(field).or_default().push(format!("{} {}", pod.id, pod.name));
        }
        let used = self.used.entry(node).or_default();
        *used = used.saturating_add(Resources { pods: 1, ..pod.request });
    }

    pub(crate) fn add_slots(&mut self, service: &ServiceName, slots: &[ReplicaSlot]) {
        for slot in slots {
            match &slot.holder {
                SlotHolder::Pod(pod) => {
                    self.add(pod);
                    if pod.service.as_ref() != Some(service) {
                        self.strays.insert(pod.id.clone());
                    }
                }
                SlotHolder::Unreadable => self.is_incomplete = true,
                // Counted elsewhere.
                SlotHolder::NoRecord | SlotHolder::Lost | SlotHolder::Void => {}
            }
        }
    }

    pub(crate) fn add_spec(&mut self, spec: &SpecId) {
        self.specs.insert(spec.clone());
    }

    pub(crate) fn uses(&self, spec: &SpecId) -> bool {
        self.specs.contains(spec)
    }

    pub(crate) fn used(&self, node: &NodeName) -> Resources {
        self.used.get(node).copied().unwrap_or_default()
    }

    pub(crate) fn drift(&self, node: &NodeUsage) -> Option<Drift> {
        let actual = self.used(&node.name).to_array();
        let used = std::array::from_fn(|i| node.used[i].saturating_sub_unsigned(actual[i]));
        let drift = Drift { used, held: self.holder_drift(node) };
        (drift != Drift::default()).then_some(drift)
    }

    fn holder_drift(&self, node: &NodeUsage) -> Vec<HolderCorrection> {
        let of_pods = self.holders.get(&node.name);
        let fields: BTreeSet<&String> =
            node.held.keys().chain(of_pods.into_iter().flat_map(HashMap::keys)).collect();
        let correction = |field: &String| {
            let seen = node.held.get(field).cloned().unwrap_or_default();
            let holders = of_pods.and_then(|of_pods| of_pods.get(field));
            // Pushed pods may want the same port.
            let is_right = holders.is_some_and(|holders| holders.contains(&seen));
            let actual = holders.and_then(|holders| holders.first()).cloned().unwrap_or_default();
            (!is_right).then(|| HolderCorrection { field: field.clone(), seen, actual })
        };
        fields.into_iter().filter_map(correction).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::collections::BTreeMap;

    use model::ids::Incarnation;
    use model::node::ResourceIds;
    use model::pod::slot::Slot;

    use super::*;
    use crate::reconcile::plan::testing::record;

    #[test]
    fn a_pod_in_the_slot_of_another_service_counts_once() {
        let here = NodeName::new("here").unwrap();
        let pod = PodRecord { node: Some(here.clone()), ..record("gone", 0, 1, Phase::Running) };
        let holder = SlotHolder::Pod(Box::new(pod.clone()));
        let slot = ReplicaSlot { slot: Slot::first(0), id: pod.id.clone(), holder };
        let mut sums = PassSums::default();
        sums.add_slots(&ServiceName::new("web").unwrap(), &[slot]);
        sums.add(&pod);
        assert_eq!(sums.used(&here).pods, 1);
    }

    #[test]
    fn pods_count_where_they_reserve() {
        let here = NodeName::new("here").unwrap();
        let mut sums = PassSums::default();
        for phase in Phase::ALL {
            let pod = record("web", 0, 1, phase);
            let request =
                Resources { cpu_millis: 100, memory_bytes: 1 << 20, pids: 7, disk_bytes: 9, pods: 1 };
            sums.add(&PodRecord { node: Some(here.clone()), request, ..pod });
        }
        assert_eq!(
            sums.used(&here),
            Resources { cpu_millis: 300, memory_bytes: 3 << 20, pids: 21, disk_bytes: 27, pods: 3 }
        );
        for (used, expected) in [
            ([3, 300, 3 << 20, 21, 27], None),
            ([4, 300, 3 << 20, 22, 27], Some(Drift { used: [1, 0, 0, 1, 0], held: vec![] })),
            ([-1, 0, 0, 0, 0], Some(Drift { used: [-4, -300, -(3 << 20), -21, -27], held: vec![] })),
        ] {
            let incarnation = Incarnation::random();
            let held = BTreeMap::new();
            let usage = NodeUsage { name: here.clone(), incarnation, reservations: 0, used, held };
            assert_eq!(sums.drift(&usage), expected);
        }
    }

    /// Must not be quadratic in the nodes.
    #[test]
    fn the_ports_of_ten_thousand_nodes_are_compared_in_seconds() {
        let nodes: Vec<NodeName> = (0..10_000).map(|n| NodeName::new(format!("n{n}")).unwrap()).collect();
        let mut sums = PassSums::default();
        for node in &nodes {
            let pod = record("web", 0, 1, Phase::Running);
            let host_ports = "1/tcp 2/tcp 3/tcp 4/tcp 5/tcp".to_owned();
            sums.add(&PodRecord { node: Some(node.clone()), host_ports, ..pod });
        }
        let begun = std::time::Instant::now();
        for name in nodes {
            let (used, held) = ([1, 0, 0, 0, 0], BTreeMap::new());
            let usage = NodeUsage { name, incarnation: Incarnation::random(), reservations: 0, used, held };
            assert_eq!(sums.drift(&usage).unwrap().held.len(), 5);
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
    }

    #[test]
    fn ports_and_ids_belong_to_the_pods_that_have_them_in_their_records() {
        let here = NodeName::new("here").unwrap();
        let mut sums = PassSums::default();
        let pod = record("web", 0, 1, Phase::Running);
        let holder = format!("{} {}", pod.id, pod.name);
        let resource_ids = ResourceIds::from_text("gpu/1");
        let pod =
            PodRecord { node: Some(here.clone()), host_ports: "443/tcp".to_owned(), resource_ids, ..pod };
        sums.add(&pod);
        let drift = |held: &[(&str, &str)]| {
            let held =
                held.iter().map(|(field, holder)| ((*field).to_owned(), (*holder).to_owned())).collect();
            let incarnation = Incarnation::random();
            let used = [1, 0, 0, 0, 0];
            let usage = NodeUsage { name: here.clone(), incarnation, reservations: 0, used, held };
            let held = sums.drift(&usage).unwrap_or_default().held;
            held.into_iter().map(|one| (one.field, one.seen, one.actual)).collect::<Vec<_>>()
        };
        let correction = |field: &str, seen: &str, actual: &str| (field.into(), seen.into(), actual.into());
        assert_eq!(drift(&[("id:gpu/1", &holder), ("port:443/tcp", &holder)]), []);
        assert_eq!(drift(&[("id:gpu/1", &holder)]), [correction("port:443/tcp", "", &holder)]);
        assert_eq!(
            drift(&[("id:gpu/0", "gone web"), ("id:gpu/1", "gone web"), ("port:443/tcp", &holder)]),
            [correction("id:gpu/0", "gone web", ""), correction("id:gpu/1", "gone web", &holder)]
        );
        assert_eq!(
            drift(&[
                ("id:gpu/1", &holder),
                ("port:443/tcp", "gone web"),
                ("port:53/udp", "- another program")
            ]),
            [
                correction("port:443/tcp", "gone web", &holder),
                correction("port:53/udp", "- another program", "")
            ]
        );
    }
}
