//! Plans on random clusters equal what schedulers decide, computed anew from all pods.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use std::collections::{BTreeMap, BTreeSet, HashMap};

use model::ids::{NodeName, PodId, PodName, ServiceName};
use model::node::{Node, NodeState, Resources};
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use model::service::Service;
use model::spec::{PlacementProfile, ServiceInput};
use placement::{ClusterSnapshot, Generation, NodeRules, Outcome, PlacedPods, PlacementPolicy, decide};
use proptest::prelude::*;
use serde_json::{Value, json};
use testkit::fixtures;

use super::state::KnownPod;
use super::*;
use crate::batches::{MIN_BATCH, group_by_node, next_batch_size};
use crate::intake::{PendingPod, pending_pod};

const NOW: u64 = 1_000_000;
const MIB: u64 = 1 << 20;

fn name(text: impl Into<String>) -> NodeName {
    NodeName::new(text).unwrap()
}

fn node(index: usize, (zone, memory, pods): (u8, u64, u64)) -> Node {
    let capacity =
        Resources { cpu_millis: 4_000, memory_bytes: memory * 64 * MIB, pods, ..Resources::default() };
    let mut node = fixtures::node(&format!("w{index}"), capacity);
    node.beat = NOW;
    let zone = (zone > 0).then(|| ("zone".to_owned(), zone.to_string()));
    node.facts.labels.extend(zone);
    node.facts.settings = Some(Default::default());
    node.facts.settings.iter_mut().for_each(|settings| settings.forms = 9);
    node
}

fn service(index: usize, replicas: u32, memory: u64, rules: u8) -> Service {
    let other = format!("s{}", (index + 1) % 5);
    let rules: Value = match rules {
        0 => json!({"max_per_node": 2}),
        1 => json!({"spread": [{"by": "zone", "hard": true, "max_skew": 2}]}),
        2 => json!({"spread": [{"by": "node.hostname", "weight": 20}]}),
        3 => json!({"constraints": ["zone in (1,2)"]}),
        4 => json!({"preferences": [{"when": "zone == 2", "weight": 70}]}),
        5 => json!({"anti_affinity": [{"service": other, "by": "zone"}]}),
        6 => json!({"anti_affinity": [{"service": other}]}),
        7 => json!({"affinity": [{"service": other, "by": "zone", "hard": true}]}),
        8 => json!({"affinity": [{"service": other, "weight": 30}]}),
        _ => Value::Null,
    };
    let mut input = json!({"name": format!("s{index}"), "image": "a", "replicas": replicas});
    if memory > 0 {
        input["memory"] = json!(format!("{}MiB", memory * 64));
    }
    if !rules.is_null() {
        input["placement"] = rules;
    }
    let desired = ServiceInput::from_value(&input).unwrap().normalize().unwrap();
    Service::created(desired, format!("{index:012x}").parse().unwrap(), NOW)
}

fn pod_of(service: &Service, replica: u32) -> PendingPod {
    let (name, id) = (PodName::new(service.name.as_str()).unwrap(), format!("{}-{replica}", service.name));
    let payload = Payload::for_service(name, PodId::new(id).unwrap(), "a", replica, service.spec_id.clone());
    pending_pod(payload, &service.pod, Some(service.name.clone()))
}

prop_compose! {
    fn any_cluster()(
        nodes in prop::collection::vec((0..4u8, 0..16u64, 1..20u64), 1..8),
        services in prop::collection::vec((0..14u32, 0..3u64, 0..13u8), 1..5),
        running in any::<u64>(),
    ) -> (Vec<Node>, Vec<Service>, u64) {
        let nodes = nodes.into_iter().enumerate().map(|(index, of)| node(index, of)).collect();
        let services = services.into_iter().enumerate();
        let services = services.map(|(index, (replicas, memory, rules))| service(index, replicas, memory, rules));
        (nodes, services.collect(), running)
    }
}

/// A cluster whose pods are placed: where each is, by service and replica.
#[derive(Clone)]
struct Frozen {
    nodes: Vec<Node>,
    services: Vec<Service>,
    pods: Vec<(usize, u32, Phase, Option<NodeName>)>,
}

impl Frozen {
    fn new(nodes: Vec<Node>, services: Vec<Service>, running: u64) -> Self {
        let all = services.iter().enumerate().flat_map(|(at, of)| (0..of.replicas).map(move |one| (at, one)));
        let phase =
            |index: usize| if running >> (index % 64) & 1 == 1 { Phase::Running } else { Phase::Assigned };
        let waiting = all.map(|(service, replica)| (service, replica, Phase::Pending, None)).collect();
        let mut frozen = Self { nodes, services, pods: waiting };
        let queue: Vec<usize> = (0..frozen.pods.len()).collect();
        frozen.schedule(&queue);
        for (index, (_, _, of_pod, node)) in frozen.pods.iter_mut().enumerate() {
            *of_pod = if node.is_some() { phase(index) } else { Phase::Pending };
        }
        frozen
    }

    fn state(&self) -> ClusterState {
        let services = self.services.iter().map(|service| (service.name.clone(), service.clone()));
        let known = |(service, replica, phase, node): &(usize, u32, Phase, Option<NodeName>)| KnownPod {
            pod: pod_of(&self.services[*service], *replica),
            phase: *phase,
            node: node.clone(),
            created_at: NOW,
        };
        ClusterState {
            now: NOW,
            nodes: self.nodes_now(),
            services: services.collect(),
            pods: self.pods.iter().map(known).collect(),
            ..ClusterState::default()
        }
    }

    /// With what the pods use, added up anew.
    fn nodes_now(&self) -> Vec<Node> {
        let mut nodes = self.nodes.clone();
        for (service, _, _, node) in &self.pods {
            let request = self.services[*service].pod.request();
            let at = node.as_ref().and_then(|node| nodes.iter_mut().find(|one| one.name == *node));
            at.into_iter()
                .for_each(|node| node.used = node.used.saturating_add(Resources { pods: 1, ..request }));
        }
        nodes
    }

    fn placed(&self) -> PlacedPods {
        let mut placed = PlacedPods::default();
        let (owners, named) = self.related();
        for (index, service) in self.services.iter().enumerate() {
            let is_related = owners.contains(&service.name) || named.contains(&service.name);
            let rules = service.fields.placement.clone().unwrap_or_default();
            let generation = Generation { service: service.name.clone(), spec: service.spec_id.clone() };
            let mut counts: BTreeMap<NodeName, u64> = BTreeMap::new();
            for (_, _, _, node) in self.pods.iter().filter(|(of, ..)| *of == index) {
                node.iter().for_each(|node| *counts.entry(node.clone()).or_default() += 1);
            }
            if is_related {
                placed.staying.insert(service.name.clone(), counts.clone());
            }
            if rules.max_per_node.is_some() || is_related {
                placed.services.insert(service.name.clone(), counts.clone());
            }
            if service.replicas >= 2 || rules.counts_pods() || is_related {
                placed.generations.insert(generation, counts);
            }
        }
        placed
    }

    fn request(&self, pod: usize) -> PendingPod {
        let (service, replica, ..) = self.pods[pod];
        let service = &self.services[service];
        let mut pod = pod_of(service, replica);
        let placement = service.fields.placement.clone().unwrap_or_default();
        let of_others = self.services.iter().flat_map(|owner| {
            let relations = owner.fields.placement.iter().flat_map(|placement| placement.relations());
            let to_it = relations.filter(|relation| relation.service == service.name);
            to_it.filter_map(|relation| relation.reversed(&owner.name))
        });
        let is_named = self.related().1.contains(&service.name);
        pod.request.requirements.rules = NodeRules::with_relations(&placement, of_others.collect(), is_named);
        pod
    }

    /// Services that have relations, and those that they name.
    fn related(&self) -> (BTreeSet<ServiceName>, BTreeSet<ServiceName>) {
        let all = self.services.iter().flat_map(|owner| {
            let relations = owner.fields.placement.iter().flat_map(|placement| placement.relations());
            relations.map(|relation| (owner.name.clone(), relation.service))
        });
        all.unzip()
    }

    fn decide(
        &self,
        nodes: Vec<Node>,
        placed: PlacedPods,
        pods: &[PendingPod],
        is_grouped: bool,
    ) -> Vec<Outcome> {
        let mut snapshot = ClusterSnapshot::new(PlacementPolicy::default().weights);
        nodes.into_iter().for_each(|node| snapshot.upsert(node));
        snapshot.set_placed(placed);
        let mut decisions = decide(&snapshot, NOW, &PlacementPolicy::default(), pods);
        if is_grouped {
            group_by_node(pods, &mut decisions);
        }
        decisions.into_iter().map(|decision| decision.outcome).collect()
    }

    /// As a scheduler takes the queue.
    fn schedule(&mut self, queue: &[usize]) {
        let (mut rest, mut size) = (queue, MIN_BATCH);
        while !rest.is_empty() {
            let (batch, others) = rest.split_at(size.min(rest.len()));
            let pods: Vec<PendingPod> = batch.iter().map(|pod| self.request(*pod)).collect();
            let outcomes = self.decide(self.nodes_now(), self.placed(), &pods, true);
            for (pod, outcome) in batch.iter().zip(outcomes) {
                if let Outcome::Place(target) = outcome {
                    self.pods[*pod].3 = Some(target.name.clone());
                    if self.pods[*pod].2 == Phase::Pending {
                        self.pods[*pod].2 = Phase::Assigned;
                    }
                }
            }
            size = next_batch_size(size, batch.len(), self.nodes.len());
            rest = others;
        }
    }

    fn retry(&mut self) {
        loop {
            let waiting: Vec<usize> =
                (0..self.pods.len()).filter(|pod| self.pods[*pod].3.is_none()).collect();
            self.schedule(&waiting);
            let left = waiting.iter().filter(|pod| self.pods[**pod].3.is_none()).count();
            if left == waiting.len() {
                return;
            }
        }
    }

    /// The last node's pods go first; of a node those that run, then by service and replica.
    fn lose(&mut self, lost: &BTreeSet<NodeName>) {
        let mut queue = Vec::new();
        for lost in lost.iter().rev() {
            for phase in [Phase::Running, Phase::Assigned] {
                let is_next =
                    |pod: &usize| self.pods[*pod].2 == phase && self.pods[*pod].3.as_ref() == Some(lost);
                let mut next: Vec<usize> = (0..self.pods.len()).filter(is_next).collect();
                next.sort_by_key(|pod| (self.services[self.pods[*pod].0].name.clone(), self.pods[*pod].1));
                queue.extend(next);
            }
        }
        self.nodes
            .iter_mut()
            .filter(|node| lost.contains(&node.name))
            .for_each(|node| node.state = NodeState::Dead);
        queue.iter().for_each(|pod| self.pods[*pod].3 = None);
        self.schedule(&queue);
        self.retry();
    }

    /// By service, the highest replica first, as if none were there any more.
    fn drain(&mut self, drained: &NodeName) {
        self.nodes.iter_mut().filter(|node| node.name == *drained).for_each(|node| node.cordoned = true);
        let mut leaving: Vec<usize> =
            (0..self.pods.len()).filter(|pod| self.pods[*pod].3.as_ref() == Some(drained)).collect();
        leaving.sort_by_key(|pod| {
            (self.services[self.pods[*pod].0].name.clone(), std::cmp::Reverse(self.pods[*pod].1))
        });
        let mut placed = self.placed();
        let pods: Vec<PendingPod> = leaving.iter().map(|pod| self.request(*pod)).collect();
        for pod in &pods {
            placed.take_out(drained, pod.request.generation.as_ref().unwrap());
        }
        let outcomes = self.decide(self.nodes_now(), placed, &pods, false);
        for (pod, outcome) in leaving.into_iter().zip(outcomes) {
            if let Outcome::Place(target) = outcome {
                self.pods[pod].3 = Some(target.name.clone());
            }
        }
        self.retry();
    }

    fn places(&self) -> HashMap<(ServiceName, u32), Option<NodeName>> {
        let place = |(service, replica, _, node): &(usize, u32, Phase, Option<NodeName>)| {
            ((self.services[*service].name.clone(), *replica), node.clone())
        };
        self.pods.iter().map(place).collect()
    }
}

fn predicted(
    state: ClusterState,
    changes: &[PlannedChange],
) -> HashMap<(ServiceName, u32), Option<NodeName>> {
    let mut places: HashMap<(ServiceName, u32), Option<NodeName>> = HashMap::new();
    for known in &state.pods {
        places.insert((known.pod.payload.service().unwrap(), known.pod.payload.replica), known.node.clone());
    }
    let outcome = plan(state, &PlacementPolicy::default(), PlacementProfile::Default, changes).unwrap();
    for pod in outcome.moves.iter().chain(&outcome.starts).chain(&outcome.stops) {
        places.insert((pod.service.clone().unwrap(), pod.replica), pod.to.clone());
    }
    for stuck in outcome.stuck.iter().filter(|stuck| stuck.pod.to.is_none()) {
        places.insert((stuck.pod.service.clone().unwrap(), stuck.pod.replica), None);
    }
    places
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn a_loss_is_predicted_to_the_pod((nodes, services, running) in any_cluster(), lost in any::<u8>()) {
        let mut frozen = Frozen::new(nodes, services, running);
        frozen.retry();
        let is_lost = |(index, _): &(usize, &Node)| lost >> index & 1 == 1;
        let lost: BTreeSet<NodeName> =
            frozen.nodes.iter().enumerate().filter(is_lost).map(|(_, node)| node.name.clone()).collect();
        let found = predicted(frozen.state(), &[PlannedChange::Lose(lost.iter().cloned().collect())]);
        frozen.lose(&lost);
        prop_assert_eq!(found, frozen.places());
    }

    #[test]
    fn a_drain_is_predicted_to_the_pod((nodes, services, running) in any_cluster(), drained in 0..8usize) {
        let mut frozen = Frozen::new(nodes, services, running);
        frozen.retry();
        let drained = frozen.nodes[drained % frozen.nodes.len()].name.clone();
        let found = predicted(frozen.state(), &[PlannedChange::Drain(drained.clone())]);
        frozen.drain(&drained);
        prop_assert_eq!(found, frozen.places());
    }

    #[test]
    fn new_replicas_are_predicted_to_the_pod(
        (nodes, services, running) in any_cluster(),
        (scaled, more) in (0..4usize, 0..30u32),
    ) {
        let mut frozen = Frozen::new(nodes, services, running);
        frozen.retry();
        let scaled = scaled % frozen.services.len();
        let (before, after) = (frozen.services[scaled].replicas, frozen.services[scaled].replicas + more);
        let change = BTreeMap::from([(frozen.services[scaled].name.clone(), after)]);
        let found = predicted(frozen.state(), &[PlannedChange::Scale(change)]);
        frozen.services[scaled].replicas = after;
        let first = frozen.pods.len();
        frozen.pods.extend((before..after).map(|replica| (scaled, replica, Phase::Pending, None)));
        let queue: Vec<usize> = (first..frozen.pods.len()).collect();
        frozen.schedule(&queue);
        frozen.retry();
        prop_assert_eq!(found, frozen.places());
    }
}

fn three_nodes(memory: u64) -> Frozen {
    let nodes = (0..3).map(|index| node(index, (index as u8 + 1, memory, 20))).collect();
    Frozen::new(nodes, vec![service(0, 6, 2, 9)], u64::MAX)
}

fn outcome_of(frozen: &Frozen, changes: &[PlannedChange]) -> PlanOutcome {
    plan(frozen.state(), &PlacementPolicy::default(), PlacementProfile::Default, changes).unwrap()
}

#[test]
fn what_does_not_fit_is_told_with_the_smallest_change_and_a_new_node_takes_it() {
    let frozen = three_nodes(6);
    let drain = PlannedChange::Drain(name("w0"));
    let outcome = outcome_of(&frozen, std::slice::from_ref(&drain));
    assert!(outcome.fits(), "{outcome:?}");
    assert_eq!(outcome.moves.len(), 2);
    let both = [drain.clone(), PlannedChange::Lose(vec![name("w1")])];
    let outcome = outcome_of(&frozen, &both);
    assert!(!outcome.fits());
    let why: BTreeSet<&str> = outcome.stuck.iter().map(|stuck| stuck.why.as_str()).collect();
    assert!(why.iter().any(|why| why.contains("InsufficientMemory")), "{why:?}");
    assert!(outcome.stuck[0].change.is_some(), "{:?}", outcome.stuck);
    let capacity = Resources { cpu_millis: 8_000, memory_bytes: 1 << 30, ..Resources::default() };
    let new = PlannedChange::AddNodes(NewNodes { capacity, labels: BTreeMap::new(), count: 1 });
    let [first, second] = both;
    let outcome = outcome_of(&frozen, &[first, second, new]);
    assert!(outcome.fits(), "{outcome:?}");
    let added = outcome.nodes.iter().find(|node| node.name.as_str() == "new-1").unwrap();
    assert_eq!((added.before, added.capacity.pods), (None, 20));
    assert!(added.after.pods > 0);
    assert!(outcome.nodes.iter().any(|node| node.is_lost && node.after.pods == 0));
}

#[test]
fn a_service_that_is_put_is_planned_as_after_its_rollout() {
    let frozen = three_nodes(5);
    let put = |json: Value| {
        let desired = ServiceInput::from_value(&json).unwrap().normalize().unwrap();
        PlannedChange::Put(Box::new(desired))
    };
    let same = put(json!({"name": "s0", "image": "a", "memory": "128MiB", "replicas": 4}));
    let outcome = outcome_of(&frozen, &[same]);
    assert_eq!((outcome.stops.len(), outcome.starts.len(), outcome.notes.len()), (2, 0, 0));
    let larger = put(json!({"name": "s0", "image": "a", "memory": "320MiB", "replicas": 4}));
    let outcome = outcome_of(&frozen, &[larger]);
    assert_eq!((outcome.stops.len(), outcome.starts.len(), outcome.stuck.len()), (6, 3, 1));
    assert_eq!(outcome.notes.len(), 1);
    let other = put(json!({"name": "other", "image": "a", "replicas": 2}));
    assert_eq!(outcome_of(&frozen, &[other]).starts.len(), 2);
    let unknown = [PlannedChange::Scale(BTreeMap::from([("x".parse().unwrap(), 2)]))];
    let refused = plan(frozen.state(), &PlacementPolicy::default(), PlacementProfile::Default, &unknown);
    assert_eq!(refused.unwrap_err().why, "there is no service x");
}
