//! Slots of pods that Redis has lost while a node may still run them. They get no pod until all live nodes
//! had time to report, nor while one holds the pod: two pods of one replica would run. Pure.
//!
//! An ended pod keeps its record for an hour: one without a record was lost.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use model::ids::{NodeName, PodId, ServiceName};
use model::node::{HeldPod, Node, NodeState};

use super::slots::{ReplicaSlot, SlotHolder};

const MAX_NAMED: usize = 5;

/// Replicas that live nodes hold, each with one of these nodes.
pub(crate) type HeldReplicas = HashMap<ServiceName, BTreeMap<u32, NodeName>>;

pub(crate) fn held_replicas<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> HeldReplicas {
    let mut held = HeldReplicas::new();
    for node in nodes.into_iter().filter(|node| node.state == NodeState::Alive) {
        for HeldPod { service, replica, .. } in &node.held_pods {
            let replicas = held.entry(service.clone()).or_default();
            replicas.entry(*replica).or_insert_with(|| node.name.clone());
        }
    }
    held
}

pub(crate) struct LostPods {
    wait: Duration,
    last: HashMap<ServiceName, (Instant, BTreeMap<u32, PodId>)>,
    since: HashMap<PodId, Instant>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct GonePods {
    /// Without a record.
    pub(crate) lost: Vec<(u32, PodId)>,
    /// A full pass restores their slots.
    pub(crate) unlisted: Vec<(u32, PodId)>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldBack {
    pub(crate) replicas: BTreeSet<u32>,
    pub(crate) why: Option<String>,
    pub(crate) look_again_in: Option<Duration>,
}

impl LostPods {
    pub(crate) fn new(wait: Duration) -> Self {
        Self { wait, last: HashMap::new(), since: HashMap::new() }
    }

    pub(crate) fn knows(&self, service: &ServiceName) -> bool {
        self.last.contains_key(service)
    }

    /// Their replica has no slot: the records tell whether they have ended.
    pub(crate) fn gone(&self, service: &ServiceName, slots: &[ReplicaSlot]) -> Vec<(u32, PodId)> {
        let Some((_, last)) = self.last.get(service) else { return Vec::new() };
        let taken: BTreeSet<u32> = slots.iter().map(|slot| slot.slot.replica).collect();
        let gone = last.iter().filter(|(replica, _)| !taken.contains(replica));
        gone.map(|(replica, pod)| (*replica, pod.clone())).collect()
    }

    /// Marks slots as taken. Returns the replicas without a slot that get no pod.
    pub(crate) fn hold_back(
        &mut self,
        service: &ServiceName,
        slots: &mut [ReplicaSlot],
        gone: &GonePods,
        held: &HeldReplicas,
        now: Instant,
    ) -> HeldBack {
        let no_replicas = BTreeMap::new();
        let held = held.get(service).unwrap_or(&no_replicas);
        let (mut waiting, mut back) = (BTreeSet::new(), HeldBack::default());
        let mut left = Vec::new();
        let mut must_wait = |replica: u32, pod: &PodId| {
            let since = *self.since.entry(pod.clone()).or_insert(now);
            let time = self.wait.saturating_sub(now.saturating_duration_since(since));
            let is_held = held.contains_key(&replica);
            if !time.is_zero() && !is_held {
                waiting.insert(replica);
                left.push(time);
            }
            is_held || !time.is_zero()
        };
        for slot in slots.iter_mut().filter(|slot| slot.holder == SlotHolder::NoRecord) {
            if must_wait(slot.slot.replica, &slot.id) {
                slot.holder = SlotHolder::Lost;
            }
        }
        let lost: Vec<&(u32, PodId)> =
            gone.lost.iter().filter(|(replica, pod)| must_wait(*replica, pod)).collect();
        let kept: Vec<&(u32, PodId)> = lost.into_iter().chain(&gone.unlisted).collect();
        back.replicas = kept.iter().map(|(replica, _)| *replica).collect();
        back.replicas.extend(held.keys());
        back.look_again_in = left.into_iter().max();
        let of_nodes: BTreeSet<u32> =
            held.keys().copied().filter(|replica| is_free(slots, *replica)).collect();
        back.why = sentence(service, held, &of_nodes, &waiting);
        self.remember(service, slots, &kept, now);
        back
    }

    fn remember(
        &mut self,
        service: &ServiceName,
        slots: &[ReplicaSlot],
        kept: &[&(u32, PodId)],
        now: Instant,
    ) {
        let holders = slots.iter().filter(|slot| slot.pod().is_some() || slot.holder == SlotHolder::Lost);
        let mut pods: BTreeMap<u32, PodId> =
            holders.map(|slot| (slot.slot.replica, slot.id.clone())).collect();
        pods.extend(kept.iter().map(|kept| (*kept).clone()));
        self.last.insert(service.clone(), (now, pods));
    }

    /// A service may come back before its pods.
    pub(crate) fn retain(&mut self, exists: impl Fn(&ServiceName) -> bool, now: Instant) {
        let kept = self.wait * 10;
        self.last.retain(|name, (at, _)| exists(name) || now.saturating_duration_since(*at) < kept);
        self.since.retain(|_, since| now.saturating_duration_since(*since) < kept);
    }
}

fn is_free(slots: &[ReplicaSlot], replica: u32) -> bool {
    !slots.iter().any(|slot| slot.slot.replica == replica && slot.pod().is_some())
}

fn sentence(
    service: &ServiceName,
    held: &BTreeMap<u32, NodeName>,
    of_nodes: &BTreeSet<u32>,
    waiting: &BTreeSet<u32>,
) -> Option<String> {
    let named = |replicas: &BTreeSet<u32>| {
        let names: Vec<String> = replicas.iter().take(MAX_NAMED).map(|r| format!("{service}-{r}")).collect();
        let more = replicas.len().saturating_sub(MAX_NAMED);
        names.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
    };
    if let Some(node) = of_nodes.first().and_then(|replica| held.get(replica)) {
        return Some(format!(
            "no pod is created for {}: node {node} has containers whose records are lost; `kubeleet cluster recover` \
             records them again",
            named(of_nodes)
        ));
    }
    (!waiting.is_empty()).then(|| {
        format!(
            "no pod is created for {} yet: the records are lost, and a node may run the pods",
            named(waiting)
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use model::pod::lifecycle::Phase;

    use super::super::plan::testing::slots;
    use super::*;

    fn web() -> ServiceName {
        ServiceName::new("web").unwrap()
    }

    fn held(replicas: &[u32]) -> HeldReplicas {
        let node = NodeName::new("a").unwrap();
        HashMap::from([(web(), replicas.iter().map(|replica| (*replica, node.clone())).collect())])
    }

    fn look(
        lost: &mut LostPods,
        taken: &[ReplicaSlot],
        held: &HeldReplicas,
        now: Instant,
    ) -> (Vec<u32>, HeldBack) {
        let mut slots = taken.to_vec();
        let gone = GonePods { lost: lost.gone(&web(), &slots), unlisted: Vec::new() };
        let back = lost.hold_back(&web(), &mut slots, &gone, held, now);
        let kept = slots.iter().filter(|slot| slot.holder == SlotHolder::Lost).map(|slot| slot.slot.replica);
        (kept.collect(), back)
    }

    #[test]
    fn a_slot_whose_record_is_lost_is_free_when_all_nodes_could_say_that_they_hold_the_pod() {
        let wait = Duration::from_secs(20);
        let (mut lost, begun) = (LostPods::new(wait), Instant::now());
        let mut taken = slots(&[(1, Phase::Running); 3]);
        assert_eq!(look(&mut lost, &taken, &held(&[]), begun), (vec![], HeldBack::default()));
        taken[0].holder = SlotHolder::NoRecord;
        taken[1].holder = SlotHolder::NoRecord;
        let (kept, back) = look(&mut lost, &taken, &held(&[]), begun);
        assert_eq!((kept, back.look_again_in), (vec![0, 1], Some(wait)));
        assert!(back.why.unwrap().contains("web-0, web-1 yet"));
        // A node may hold one of them without limit.
        let (kept, back) = look(&mut lost, &taken, &held(&[1]), begun + wait);
        assert_eq!((kept, back.look_again_in), (vec![1], None));
        assert!(back.why.unwrap().contains("for web-1: node a has containers"));
        assert_eq!(look(&mut lost, &taken, &held(&[]), begun + wait), (vec![], HeldBack::default()));
    }

    #[test]
    fn slots_that_vanish_together_with_the_records_of_their_pods_wait_as_well() {
        let wait = Duration::from_secs(20);
        let (mut lost, begun) = (LostPods::new(wait), Instant::now());
        let taken = slots(&[(1, Phase::Running); 3]);
        look(&mut lost, &taken, &held(&[]), begun);
        let (_, back) = look(&mut lost, &taken[..1], &held(&[]), begun);
        assert_eq!((back.replicas, back.look_again_in), (BTreeSet::from([1, 2]), Some(wait)));
        let (_, back) = look(&mut lost, &taken[..1], &held(&[2, 7]), begun + wait);
        assert_eq!(
            back.replicas,
            BTreeSet::from([2, 7]),
            "what a node holds although no slot was known, too"
        );
        let (_, back) = look(&mut lost, &taken[..1], &held(&[]), begun + wait);
        assert_eq!(back, HeldBack::default());
        let mut slots = taken[..1].to_vec();
        look(&mut lost, &taken, &held(&[]), begun);
        assert_eq!(lost.gone(&web(), &slots).len(), 2);
        assert_eq!(
            lost.hold_back(&web(), &mut slots, &GonePods::default(), &held(&[]), begun),
            HeldBack::default()
        );
        assert!(lost.gone(&web(), &slots).is_empty(), "it is looked at once");
        look(&mut lost, &taken, &held(&[]), begun);
        let unlisted = GonePods { lost: Vec::new(), unlisted: lost.gone(&web(), &slots) };
        let back = lost.hold_back(&web(), &mut slots, &unlisted, &held(&[]), begun + 9 * wait);
        assert_eq!((back.replicas, lost.gone(&web(), &slots).len()), (BTreeSet::from([1, 2]), 2));
        let at = begun + 9 * wait;
        lost.retain(|_| false, at + wait);
        assert_eq!(lost.gone(&web(), &slots).len(), 2);
        lost.retain(|_| false, at + 11 * wait);
        assert!(lost.gone(&web(), &slots).is_empty());
    }
}
