//! Reads the services of a batch: their rules for nodes, their profiles, and the pods of their generations by
//! node, so that new ones go elsewhere.
//!
//! Only schedulers know these numbers. Another one may place a pod at the same time: if rules that must hold
//! count the pods, they are ordinals, or their service is global, the script then refuses, see
//! [`CountedAssignment`]; else in a small cluster the node does, see `MAX_EXACT_SPREAD` of the scheduler.
//!
//! [`CountedAssignment`]: store::CountedAssignment

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use model::ids::ServiceName;
use model::spec::{PlacementProfile, Preemption, Priority, Relation, RelationKind};
use placement::{Generation, NodeRules, OrdinalPlaces, PlacedPods, PodsByNode, Target};
use store::{PlacedService, Sibling, Store, StoreError, WaitingPods};

use crate::intake::{PendingPod, SeenMark};
use crate::ordinals;

/// Sets the rules, the profile and the target of each pod. Returns where its siblings are. `profile` is that
/// of pods whose service names none.
pub async fn read_services(
    store: &Store,
    profile: PlacementProfile,
    pods: &mut [PendingPod],
) -> Result<PlacedPods, StoreError> {
    read(store, profile, pods, Waiting::of(pods)).await
}

/// Like [`read_services`], without siblings that only make some nodes better than others.
pub(crate) async fn read_rules(
    store: &Store,
    profile: PlacementProfile,
    pods: &mut [PendingPod],
) -> Result<PlacedPods, StoreError> {
    let mut waiting = Waiting::of(pods);
    let without_zones = waiting.services.values_mut().filter(|pods| !pods.are_ordinals);
    without_zones.for_each(|pods| pods.count = usize::MAX);
    read(store, profile, pods, waiting).await
}

async fn read(
    store: &Store,
    profile: PlacementProfile,
    pods: &mut [PendingPod],
    waiting: Waiting,
) -> Result<PlacedPods, StoreError> {
    let placed = store.placed_services(&waiting.services).await?;
    let ordinals = ordinals::read_places(store, pods, &placed).await?;
    Ok(waiting.set_services(pods, &placed, ordinals, profile))
}

/// The services of a batch.
pub(crate) struct Waiting {
    generations: BTreeMap<Generation, WaitingPods>,
    pub(crate) services: BTreeMap<ServiceName, WaitingPods>,
}

impl Waiting {
    pub(crate) fn of(pods: &[PendingPod]) -> Self {
        let generations = generations_of(pods);
        let mut services: BTreeMap<ServiceName, WaitingPods> = BTreeMap::new();
        for (generation, pods) in &generations {
            let of_service = services.entry(generation.service.clone()).or_insert(*pods);
            of_service.count = of_service.count.min(pods.count);
            of_service.are_ordinals |= pods.are_ordinals;
        }
        Self { generations, services }
    }

    /// See [`read_services`]. `placed` has these services.
    pub(crate) fn set_services(
        self,
        pods: &mut [PendingPod],
        placed: &HashMap<ServiceName, PlacedService>,
        ordinals: HashMap<ServiceName, OrdinalPlaces>,
        profile: PlacementProfile,
    ) -> PlacedPods {
        set_rules(pods, placed);
        set_targets(pods, placed);
        set_profiles(pods, placed, profile);
        set_priorities(pods, placed);
        let of_generation = |generation: Generation| {
            let siblings = placed.get(&generation.service)?.siblings.as_ref()?.iter();
            let own = siblings.filter(|one| one.spec == generation.spec && !one.is_leaving);
            let nodes = count(own);
            Some((generation, nodes))
        };
        let generations = self.generations.into_keys().filter_map(of_generation).collect();
        let related: BTreeSet<ServiceName> = placed.values().flat_map(PlacedService::related).collect();
        let is_counted = |name, of_one: &PlacedService| {
            of_one.placement.max_per_node.is_some() || of_one.is_related() || related.contains(name)
        };
        let counted = placed.iter().filter(|(name, of_one)| is_counted(name, of_one));
        let services = counted.map(|(name, of_one)| (name.clone(), count(of_one.siblings.iter().flatten())));
        let staying = related.iter().filter_map(|name| {
            let siblings = placed.get(name)?.siblings.iter().flatten();
            Some((name.clone(), count(siblings.filter(|one| !one.is_leaving))))
        });
        PlacedPods { generations, services: services.collect(), staying: staying.collect(), ordinals }
    }
}

fn generations_of(pods: &[PendingPod]) -> BTreeMap<Generation, WaitingPods> {
    let mut waiting: BTreeMap<Generation, WaitingPods> = BTreeMap::new();
    for run in pods.chunk_by(|a, b| generation_of(a) == generation_of(b)) {
        if let Some((generation, first)) = run.first().and_then(|pod| Some((generation_of(pod)?, pod))) {
            let of_generation = waiting.entry(generation.clone()).or_default();
            of_generation.count += run.len();
            of_generation.are_ordinals = first.request.ordinal.is_some();
        }
    }
    waiting
}

fn count<'a>(siblings: impl Iterator<Item = &'a Sibling>) -> PodsByNode {
    let mut nodes = PodsByNode::new();
    siblings.for_each(|one| *nodes.entry(one.node.clone()).or_default() += 1);
    nodes
}

struct ServiceRules {
    rules: Arc<NodeRules>,
    /// If rules that must hold count the pods.
    seen_mark: Option<Arc<SeenMark>>,
}

impl ServiceRules {
    /// `named` are the services to which any of `placed` has relations.
    fn of(
        name: &ServiceName,
        service: &PlacedService,
        placed: &HashMap<ServiceName, PlacedService>,
        named: &BTreeSet<ServiceName>,
    ) -> Option<Self> {
        let to_it = || {
            let owners = service.named_by.iter().filter(|owner| *owner != name);
            let owned = owners.filter_map(|owner| Some((owner, &placed.get(owner)?.placement)));
            let relations = owned.flat_map(|(owner, of)| of.relations().map(move |one| (owner, one)));
            relations.filter(|(_, relation)| relation.service == *name)
        };
        let of_others: Vec<Relation> =
            to_it().filter_map(|(owner, relation)| relation.reversed(owner)).collect();
        let is_awaited = to_it().any(|(_, one)| one.hard && one.kind == RelationKind::Near);
        let rules = NodeRules::with_relations(&service.placement, of_others, named.contains(name))?;
        let is_strict =
            service.placement.counts_strictly() || is_awaited || rules.relations.iter().any(|one| one.hard);
        let seen_mark = is_strict.then(|| {
            let others = rules.relations.iter().filter(|one| one.hard && one.service != *name);
            let others: BTreeSet<&ServiceName> = others.map(|one| &one.service).collect();
            let mark =
                |other: &&ServiceName| placed.get(*other).map(|of| of.mark.clone()).unwrap_or_default();
            let related = others.iter().map(|other| ((*other).clone(), mark(other))).collect();
            Arc::new(SeenMark { own: service.mark.clone(), related, is_awaited })
        });
        Some(Self { rules, seen_mark })
    }
}

/// A pod that another one moves away for goes where that was planned, a pod that moves knows where to, and
/// one of a global service goes to its node.
fn set_targets(pods: &mut [PendingPod], placed: &HashMap<ServiceName, PlacedService>) {
    let has_moves = placed.values().any(|service| !service.moves.is_empty());
    let has_none = |pod: &PendingPod| pod.request.target.is_none() && pod.moves_to.is_none();
    if !has_moves && pods.iter().all(has_none) {
        return;
    }
    for pod in pods {
        let service = pod.request.generation.as_ref().and_then(|of| placed.get(&of.service));
        let replica = pod.payload.replica;
        pod.request.target = if pod.is_global() {
            let node = service.and_then(|of| of.members.wanted_on(replica));
            Some(node.map_or(Target::Nowhere, |node| Target::Only(node.clone())))
        } else {
            let planned = service.and_then(|of| of.moves.target_of(replica, &pod.payload.id));
            planned.cloned().map(Target::Planned)
        };
        let own = service.and_then(|of| of.moves.of_pod(replica, &pod.payload.id));
        pod.moves_to = own.map(|one| one.to.clone());
    }
}

/// The pods of a service share them.
fn set_rules(pods: &mut [PendingPod], placed: &HashMap<ServiceName, PlacedService>) {
    let named: BTreeSet<ServiceName> = placed.values().flat_map(PlacedService::named).collect();
    let with_rules = placed
        .iter()
        .filter_map(|(name, of_one)| Some((name, ServiceRules::of(name, of_one, placed, &named)?)));
    let rules: HashMap<&ServiceName, ServiceRules> = with_rules.collect();
    let has_none = |pod: &PendingPod| {
        pod.request.requirements.rules.is_none() && pod.request.ordinal.is_none() && !pod.is_global()
    };
    if rules.is_empty() && pods.iter().all(has_none) {
        return;
    }
    for pod in pods {
        let service = pod.request.generation.as_ref().map(|generation| &generation.service);
        let of_service = service.and_then(|service| rules.get(service));
        pod.request.requirements.rules = of_service.map(|of_service| of_service.rules.clone());
        pod.seen_mark = of_service.and_then(|of_service| of_service.seen_mark.clone());
        if pod.seen_mark.is_none() && (pod.request.ordinal.is_some() || pod.is_global()) {
            let placed = service.and_then(|service| placed.get(service));
            pod.seen_mark = placed.map(|placed| Arc::new(SeenMark::of(placed.mark.clone())));
        }
    }
}

fn set_profiles(
    pods: &mut [PendingPod],
    placed: &HashMap<ServiceName, PlacedService>,
    default: PlacementProfile,
) {
    for pod in pods {
        let service = pod.request.generation.as_ref().and_then(|generation| placed.get(&generation.service));
        let of_service = service.and_then(|service| service.profile);
        pod.request.requirements.profile = of_service.unwrap_or(default);
    }
}

fn set_priorities(pods: &mut [PendingPod], placed: &HashMap<ServiceName, PlacedService>) {
    if placed.values().all(|service| service.priority == Priority::default()) {
        return;
    }
    for pod in pods {
        let service = pod.request.generation.as_ref().and_then(|generation| placed.get(&generation.service));
        pod.priority = service.map(|service| service.priority).unwrap_or_default();
        pod.preempts =
            service.is_some_and(|service| Preemption::applies(service.preemption, service.priority));
    }
}

fn generation_of(pod: &PendingPod) -> Option<&Generation> {
    pod.request.generation.as_ref()
}
