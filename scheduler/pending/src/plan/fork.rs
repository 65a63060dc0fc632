//! A copy of the cluster on which changes are tried. Decides by the same functions as schedulers do.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use model::RedisMillis;
use model::ids::{NodeName, PodId, PodName, ServiceName, SpecId, VolumeName};
use model::node::mass_loss::{CircuitBreaker, SilentNodes};
use model::node::{Node, NodeInfo, NodeSettings, NodeState, Resources};
use model::pod::Refusal;
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use model::service::Service;
use model::service::volume::{Volume, VolumeClaim, VolumeScope};
use model::spec::{DesiredService, FORM_WITH_RULES, Kind, PlacementProfile};
use placement::{ClusterSnapshot, Outcome, PlacedPods, PlacementPolicy, VolumePlaces};
use store::{PlacedService, Sibling, WaitingPods};

use super::change::{NewNodes, NodeSelection, PlannedChange};
use super::state::{ClusterState, KnownPod};
use crate::batches::{MIN_BATCH, group_by_node, next_batch_size};
use crate::drain::{Place, decide_places, leave, leaves_before, stays};
use crate::intake::{PendingPod, bound, pending_pod};
use crate::judge::take_out;
use crate::ordinals::KnownPlaces;
use crate::priorities::decide_by_priority;
use crate::services::Waiting;

pub(super) struct Fork {
    pub(super) policy: PlacementPolicy,
    profile: PlacementProfile,
    pub(super) now: RedisMillis,
    pub(super) snapshot: ClusterSnapshot,
    pub(super) services: BTreeMap<ServiceName, Service>,
    /// None is taken out of the list: indices stay.
    pub(super) pods: Vec<ForkedPod>,
    pods_of: HashMap<ServiceName, Vec<usize>>,
    volumes: HashMap<VolumeName, Volume>,
    pub(super) drained: BTreeSet<NodeName>,
    pub(super) notes: Vec<String>,
}

pub(super) struct ForkedPod {
    pub(super) pod: PendingPod,
    pub(super) phase: Phase,
    pub(super) node: Option<NodeName>,
    pub(super) created_at: RedisMillis,
    /// It ended, or was never created.
    pub(super) is_gone: bool,
    /// Why it waits, or stays on a node that is drained.
    pub(super) stuck: Option<Place>,
}

/// The cluster at one moment.
pub(super) struct Picture {
    /// By index; `None` for a pod that is gone.
    pub(super) pods: Vec<Option<Option<NodeName>>>,
    pub(super) nodes: BTreeMap<NodeName, Resources>,
}

impl Fork {
    pub(super) fn new(state: ClusterState, policy: PlacementPolicy, profile: PlacementProfile) -> Self {
        let ClusterState { now, nodes, services, pods, volumes, needs, unreadable } = state;
        let mut snapshot = ClusterSnapshot::new(policy.weights);
        nodes.into_iter().for_each(|node| snapshot.upsert(node));
        snapshot.set_needs(needs);
        let mut fork = Self {
            policy,
            profile,
            now,
            snapshot,
            services,
            pods: Vec::with_capacity(pods.len()),
            pods_of: HashMap::new(),
            volumes,
            drained: BTreeSet::new(),
            notes: Vec::new(),
        };
        if unreadable > 0 {
            fork.notes.push(format!("{unreadable} pods are unreadable, and count where they are"));
        }
        for pod in pods {
            fork.add(pod);
        }
        fork
    }

    pub(super) fn picture(&self) -> Picture {
        let of_pod = |pod: &ForkedPod| (!pod.is_gone).then(|| pod.node.clone());
        Picture {
            pods: self.pods.iter().map(of_pod).collect(),
            nodes: self.snapshot.nodes().map(|node| (node.name.clone(), node.used)).collect(),
        }
    }

    /// # Errors
    /// A sentence, if there is no such object.
    pub(super) fn apply(&mut self, change: &PlannedChange) -> Result<(), String> {
        match change {
            PlannedChange::Drain(node) => {
                self.node(node)?;
                self.drained.insert(node.clone());
            }
            PlannedChange::Lose(nodes) => self.lose(nodes)?,
            PlannedChange::LoseSelected(selection) => {
                let nodes = self.selected(selection)?;
                self.lose(&nodes)?;
            }
            PlannedChange::AddNodes(nodes) => self.add_nodes(nodes),
            PlannedChange::Scale(services) => {
                for (service, replicas) in services {
                    self.scale(service, *replicas)?;
                }
            }
            PlannedChange::Put(desired) => self.put(desired),
            PlannedChange::Rebalance { max_moves } => self.rebalance(*max_moves),
            PlannedChange::Relieve(relief) => self.relieve(relief),
        }
        // A pod of a drained node that fitted nowhere goes as soon as it fits.
        for node in self.drained.clone() {
            self.drain(&node)?;
        }
        self.place_waiting();
        Ok(())
    }

    /// Pods that fit nowhere keep waiting.
    pub(super) fn place_waiting(&mut self) {
        let mut waiting: Vec<usize> = (0..self.pods.len()).filter(|pod| self.waits(*pod)).collect();
        waiting.sort_by_key(|pod| {
            let ForkedPod { pod, created_at, .. } = &self.pods[*pod];
            (*created_at, pod.payload.name.clone(), pod.payload.replica)
        });
        while !waiting.is_empty() {
            let before = waiting.len();
            self.place(&waiting);
            waiting.retain(|pod| self.waits(*pod));
            if waiting.len() == before {
                return;
            }
        }
    }

    fn waits(&self, pod: usize) -> bool {
        let ForkedPod { phase, is_gone, .. } = &self.pods[pod];
        *phase == Phase::Pending && !is_gone
    }

    /// As a scheduler that was idle takes them from the queue.
    fn place(&mut self, pods: &[usize]) {
        let (mut rest, mut size) = (pods, MIN_BATCH);
        while !rest.is_empty() {
            let (batch, others) = rest.split_at(size.min(rest.len()));
            self.place_batch(batch);
            size = next_batch_size(size, batch.len(), self.snapshot.len());
            rest = others;
        }
    }

    fn place_batch(&mut self, batch: &[usize]) {
        let mut pods: Vec<PendingPod> = batch.iter().map(|pod| self.located(*pod)).collect();
        let placed = self.set_services(&mut pods);
        self.snapshot.set_placed(placed);
        let (mut decisions, _) = decide_by_priority(&self.snapshot, self.now, &self.policy, &pods, &[]);
        group_by_node(&pods, &mut decisions);
        for ((index, pod), decision) in batch.iter().zip(pods).zip(decisions) {
            match decision.outcome {
                Outcome::Place(target) => self.assign(*index, pod, &target.name),
                Outcome::Unschedulable { refusals } => {
                    self.pods[*index].pod = pod;
                    self.pods[*index].stuck = Some(Place::Nowhere(Vec::from(&*refusals)));
                }
            }
        }
    }

    /// With the places of its volumes as they are on the fork.
    pub(super) fn located(&self, pod: usize) -> PendingPod {
        let mut pod = self.pods[pod].pod.clone();
        let known = pod.request.requirements.volumes.take().map(|places| *places).unwrap_or_default();
        let of_claim = |claim: &VolumeClaim| bound(claim, Ok(self.volumes.get(&claim.name).cloned()));
        let bound = pod.volumes.iter().filter_map(of_claim).collect();
        pod.request.requirements.volumes = VolumePlaces { bound, ..known }.into_requirement();
        pod
    }

    pub(super) fn set_services(&self, pods: &mut [PendingPod]) -> PlacedPods {
        let waiting = Waiting::of(pods);
        let named_by = self.named_by();
        let placed = waiting.services.iter().map(|(name, pods)| {
            let named_by = named_by.get(name).cloned().unwrap_or_default();
            (name.clone(), self.placed(name, *pods, named_by))
        });
        let mut placed: HashMap<ServiceName, PlacedService> = placed.collect();
        let others: BTreeSet<ServiceName> = placed.values().flat_map(PlacedService::related).collect();
        for name in others {
            placed.entry(name).or_insert_with_key(|name| self.related(name));
        }
        let mut ordinals = KnownPlaces::of(pods, &placed);
        ordinals.add(|volume| self.volumes.get(volume)?.node.clone());
        waiting.set_services(pods, &placed, ordinals.places, self.profile)
    }

    /// As [`placed_services`](store::Store::placed_services) reads it.
    fn placed(&self, name: &ServiceName, waiting: WaitingPods, named_by: Vec<ServiceName>) -> PlacedService {
        let Some(service) = self.services.get(name) else { return PlacedService::default() };
        let placed = PlacedService { named_by, ..without_siblings(service) };
        let reads = waiting.reads_siblings(&placed, service.replicas as usize, service.is_global());
        let siblings = reads.map(|reads| if reads { self.siblings(service) } else { Vec::new() });
        PlacedService { siblings, ..placed }
    }

    /// With all its pods.
    fn related(&self, name: &ServiceName) -> PlacedService {
        let Some(service) = self.services.get(name) else { return PlacedService::default() };
        PlacedService { siblings: Some(self.siblings(service)), ..without_siblings(service) }
    }

    /// By service, the others whose rules name it.
    fn named_by(&self) -> HashMap<ServiceName, Vec<ServiceName>> {
        let mut named_by: HashMap<ServiceName, Vec<ServiceName>> = HashMap::new();
        for (owner, service) in &self.services {
            for relation in service.fields.placement.iter().flat_map(|placement| placement.relations()) {
                named_by.entry(relation.service).or_default().push(owner.clone());
            }
        }
        named_by
    }

    fn siblings(&self, service: &Service) -> Vec<Sibling> {
        let pods = self.pods_of.get(&service.name).into_iter().flatten().map(|pod| &self.pods[*pod]);
        let sibling = |ForkedPod { pod, phase, node, .. }: &ForkedPod| {
            Some(Sibling {
                spec: pod.payload.spec.clone()?,
                replica: pod.payload.replica,
                node: node.clone()?,
                is_leaving: *phase == Phase::Stopping || service.moves.is_moved(&pod.payload.id),
            })
        };
        pods.filter(|pod| !pod.is_gone).filter_map(sibling).collect()
    }

    pub(super) fn assign(&mut self, index: usize, pod: PendingPod, node: &NodeName) {
        let requirements = &pod.request.requirements;
        self.snapshot.commit(node, requirements.resources());
        self.snapshot.commit_ports(node, &requirements.host_ports, pod.request.name());
        if let Some(named) = &requirements.named {
            self.snapshot.commit_ids(node, named, pod.request.name());
        }
        if requirements.profile == PlacementProfile::RoundRobin {
            self.snapshot.commit_use(node);
        }
        self.bind_volumes(&pod.volumes, node);
        let forked = &mut self.pods[index];
        (forked.pod, forked.phase, forked.node) = (pod, Phase::Assigned, Some(node.clone()));
        forked.stuck = None;
    }

    fn bind_volumes(&mut self, claims: &[VolumeClaim], node: &NodeName) {
        let engine_id = self.snapshot.get(node).map(|node| node.facts.engine_id.clone());
        let engine_id = engine_id.filter(|id| !id.is_empty());
        for claim in claims.iter().filter(|claim| matches!(claim.scope, VolumeScope::Replica(_))) {
            let new = || Volume::bound(claim.clone(), node.clone(), engine_id.clone());
            self.volumes.entry(claim.name.clone()).or_insert_with(new);
        }
    }

    /// Its node counts without it.
    pub(super) fn take_out(&mut self, index: usize) {
        let forked = &mut self.pods[index];
        let Some(mut node) = forked.node.take().and_then(|node| self.snapshot.get(&node).cloned()) else {
            return;
        };
        take_out(&mut node, &forked.pod);
        self.snapshot.upsert(node);
    }

    fn end(&mut self, index: usize) {
        self.take_out(index);
        self.pods[index].is_gone = true;
        self.pods[index].stuck = None;
    }

    /// Pods on a node, or about to be.
    fn residents(&self, node: &NodeName) -> Vec<usize> {
        let is_there = |pod: &ForkedPod| !pod.is_gone && pod.node.as_ref() == Some(node);
        (0..self.pods.len()).filter(|index| is_there(&self.pods[*index])).collect()
    }

    fn node(&self, name: &NodeName) -> Result<Node, String> {
        self.snapshot.get(name).cloned().ok_or_else(|| format!("there is no node {name}"))
    }

    fn drain(&mut self, name: &NodeName) -> Result<(), String> {
        let node = self.node(name)?;
        if node.state == NodeState::Dead {
            return Ok(());
        }
        self.snapshot.upsert(Node { cordoned: true, ..node });
        let mut leaving = self.residents(name);
        leaving.retain(|pod| self.pods[*pod].phase != Phase::Stopping);
        let (leaving, pushed): (Vec<usize>, Vec<usize>) =
            leaving.into_iter().partition(|pod| self.pods[*pod].pod.request.generation.is_some());
        for pod in pushed {
            self.pods[pod].stuck = Some(Place::Pushed);
        }
        let (global, mut leaving): (Vec<usize>, Vec<usize>) =
            leaving.into_iter().partition(|pod| self.pods[*pod].pod.is_global());
        leaving.sort_by_cached_key(|pod| leaves_before(&self.pods[*pod].pod));
        let mut pods: Vec<PendingPod> = leaving.iter().map(|pod| self.located(*pod)).collect();
        let mut placed = self.set_services(&mut pods);
        pods.iter_mut().for_each(|pod| leave(&mut placed, pod, name));
        self.snapshot.set_placed(placed);
        let places = decide_places(&self.snapshot, self.now, &self.policy, &pods, Some(name));
        for ((index, pod), place) in leaving.into_iter().zip(pods).zip(places) {
            let kept = pod.payload.service().and_then(|service| stays(self.services.get(&service)?));
            match kept.map_or(place, Place::Stays) {
                Place::On(to) => {
                    self.take_out(index);
                    self.assign(index, pod, &to);
                }
                stuck => self.pods[index].stuck = Some(stuck),
            }
        }
        let is_empty = self.residents(name).iter().all(|pod| global.contains(pod));
        for pod in global {
            match is_empty {
                true => self.end(pod),
                false => self.pods[pod].stuck = Some(Place::Global),
            }
        }
        Ok(())
    }

    fn selected(&self, NodeSelection { text, selector }: &NodeSelection) -> Result<Vec<NodeName>, String> {
        if let Ok(name) = text.parse::<NodeName>()
            && self.snapshot.get(&name).is_some()
        {
            return Ok(vec![name]);
        }
        let is_selected = |node: &&Node| {
            node.state == NodeState::Alive && !selector.is_empty() && selector.matches(&node.facts.labels)
        };
        let selected = self.snapshot.nodes().filter(is_selected);
        let names: Vec<NodeName> = selected.map(|node| node.name.clone()).collect();
        if names.is_empty() {
            return Err(format!("no live node has this name, or labels that satisfy {text:?}"));
        }
        Ok(names)
    }

    /// In the order in which [`drain_step`](store::Store::drain_step) puts them before the queue.
    fn lose(&mut self, names: &[NodeName]) -> Result<(), String> {
        let live = self.snapshot.nodes().filter(|node| node.state == NodeState::Alive).count();
        let breaker = CircuitBreaker::evaluate(&SilentNodes {
            nodes: live,
            last_beats: names.iter().map(|_| self.now).collect(),
        });
        if breaker.is_open() {
            self.notes.push(
                "the loss of these nodes at once is a mass loss: no pod moves until they are back, or cordoned"
                    .to_owned(),
            );
        }
        let mut requeued = Vec::new();
        for name in names.iter().collect::<BTreeSet<_>>().into_iter().rev() {
            let node = self.node(name)?;
            let (ended, mut pods): (Vec<usize>, Vec<usize>) = self
                .residents(name)
                .into_iter()
                .partition(|pod| self.pods[*pod].phase == Phase::Stopping || self.pods[*pod].pod.is_global());
            ended.into_iter().for_each(|pod| self.end(pod));
            pods.sort_by_cached_key(|pod| {
                let ForkedPod { pod, phase, .. } = &self.pods[*pod];
                (Reverse(*phase == Phase::Running), pod.payload.queue_order())
            });
            let (state, used) = (NodeState::Dead, Resources::default());
            let (host_ports, given_ids) = (BTreeMap::new(), BTreeMap::new());
            self.snapshot.upsert(Node { state, used, host_ports, given_ids, ..node });
            requeued.extend(pods);
        }
        for pod in &requeued {
            (self.pods[*pod].node, self.pods[*pod].phase) = (None, Phase::Pending);
        }
        self.place(&requeued);
        Ok(())
    }

    fn add_nodes(&mut self, NewNodes { capacity, labels, count }: &NewNodes) {
        let largest = |of: fn(&Resources) -> u64| {
            self.snapshot.nodes().map(|node| of(&node.facts.capacity)).max().unwrap_or(0)
        };
        let or_largest = |amount: u64, most: u64| if amount == 0 { most } else { amount };
        let capacity = Resources {
            pods: or_largest(capacity.pods, largest(|of| of.pods).max(1)),
            pids: or_largest(capacity.pids, largest(|of| of.pids)),
            ..*capacity
        };
        let free = (1..).map(|number| NodeName::new(format!("new-{number}")).expect("short words are names"));
        let free: Vec<NodeName> =
            free.filter(|name| self.snapshot.get(name).is_none()).take(*count as usize).collect();
        for name in free {
            self.snapshot.upsert(new_node(name, capacity, labels.clone(), self.now));
        }
        for service in self.services.values().filter(|service| service.is_global()) {
            self.notes.push(format!("{} is global: its pods on new nodes are not planned", service.name));
        }
    }

    fn scale(&mut self, name: &ServiceName, replicas: u32) -> Result<(), String> {
        let service = self.services.get_mut(name).ok_or_else(|| format!("there is no service {name}"))?;
        if service.kind() != Kind::Service {
            return Err(format!("{name} is a {}, and has no number of replicas", service.kind()));
        }
        if service.is_global() {
            return Err(format!("{name} is global: it has one pod on each node, and no number of replicas"));
        }
        service.replicas = replicas;
        let service = service.clone();
        self.fit_to(&service);
        Ok(())
    }

    /// Stops the pods above its replicas, and adds those that are missing.
    fn fit_to(&mut self, service: &Service) {
        let pods = self.pods_of.get(&service.name).into_iter().flatten().copied();
        let there: Vec<usize> = pods.filter(|pod| !self.pods[*pod].is_gone).collect();
        let replica = |fork: &Self, pod: usize| fork.pods[pod].pod.payload.replica;
        let (over, rest): (Vec<usize>, Vec<usize>) =
            there.into_iter().partition(|pod| replica(self, *pod) >= service.replicas);
        over.into_iter().for_each(|pod| self.end(pod));
        let taken: BTreeSet<u32> = rest.into_iter().map(|pod| replica(self, pod)).collect();
        let new: Vec<usize> = (0..service.replicas)
            .filter(|replica| !taken.contains(replica))
            .map(|replica| self.add_replica(service, replica))
            .collect();
        self.place(&new);
    }

    fn add_replica(&mut self, service: &Service, replica: u32) -> usize {
        let name = PodName::new(service.name.as_str()).expect("names of services are names of pods");
        let image = service.pod.containers.first().map_or("", |container| container.image.as_str());
        let payload = Payload::for_service(name, PodId::random(), image, replica, service.spec_id.clone());
        let pod = pending_pod(payload, &service.pod, Some(service.name.clone()));
        self.add(KnownPod { pod, phase: Phase::Pending, node: None, created_at: self.now })
    }

    fn add(&mut self, KnownPod { pod, phase, node, created_at }: KnownPod) -> usize {
        let index = self.pods.len();
        if let Some(service) = pod.payload.service() {
            self.pods_of.entry(service).or_default().push(index);
        }
        self.pods.push(ForkedPod { pod, phase, node, created_at, is_gone: false, stuck: None });
        index
    }

    /// A changed pod has all pods replaced, as after the rollout.
    fn put(&mut self, desired: &DesiredService) {
        let known = self.services.get(&desired.name);
        let is_same = known.is_some_and(|known| known.pod == desired.pod);
        let spec_id = known.filter(|_| is_same).map_or_else(SpecId::random, |known| known.spec_id.clone());
        if known.is_some() && !is_same {
            self.notes.push(format!(
                "all pods of {} are replaced: the plan shows the end, and a rollout goes step by step",
                desired.name
            ));
            for pod in self.pods_of.get(&desired.name).cloned().unwrap_or_default() {
                if !self.pods[pod].is_gone {
                    self.end(pod);
                }
            }
        }
        let service = Service::created(desired.clone(), spec_id, self.now);
        self.services.insert(desired.name.clone(), service.clone());
        if service.is_global() {
            self.notes.push(format!("{} is global: its pods are not planned", service.name));
        } else if service.kind() == Kind::Service {
            self.fit_to(&service);
        } else {
            self.notes.push(format!("{} is a {}: its pods are not planned", service.name, service.kind()));
        }
    }

    /// Why no node takes the pod.
    pub(super) fn refusals_of(place: &Place) -> &[Refusal] {
        match place {
            Place::Nowhere(refusals) => refusals,
            _ => &[],
        }
    }
}

fn new_node(name: NodeName, capacity: Resources, labels: BTreeMap<String, String>, now: RedisMillis) -> Node {
    let settings = NodeSettings { forms: FORM_WITH_RULES, ..NodeSettings::default() };
    let facts = NodeInfo { labels, capacity, settings: Some(settings), ..NodeInfo::default() };
    Node::new(name, facts, now)
}

fn without_siblings(service: &Service) -> PlacedService {
    PlacedService {
        placement: service.fields.placement.clone().unwrap_or_default(),
        profile: service.fields.scheduler,
        priority: service.fields.priority.unwrap_or_default(),
        preemption: service.fields.preemption,
        moves: service.moves.clone(),
        members: service.members.clone(),
        ..PlacedService::default()
    }
}
