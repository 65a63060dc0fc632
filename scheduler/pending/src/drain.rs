//! Plans where pods go that leave their nodes, as by a drain: by the filters and scores that decide.
//!
//! A schedulers' loop stores the plan as moves, and the API shows it: before a drain as what it would do.

use std::collections::{BTreeSet, HashMap};

use model::RedisMillis;
use model::ids::{NodeName, PodId, ServiceName};
use model::node::Node;
use model::pod::lifecycle::Phase;
use model::pod::{NodeRefusal, PodRecord, Refusal};
use model::service::Service;
use model::spec::PlacementProfile;
use placement::{ClusterSnapshot, Outcome, PlacedPods, PlacementPolicy, Target, decide};
use store::{Store, StoreError};

use crate::begin_moves::BegunMove;
use crate::intake::{Intake, PendingPod};
use crate::services::read_services;
use crate::snapshot::read_snapshot;

/// A pod that runs on a node, or is about to.
#[derive(Debug, Clone, PartialEq)]
pub struct LeavingPod {
    pub record: PodRecord,
    pub place: Place,
    /// Its data is on the node: no other one could start it.
    pub is_bound: bool,
}

impl LeavingPod {
    /// `None` if it stays.
    pub fn begun_move(&self) -> Option<BegunMove> {
        let Place::On(to) = &self.place else { return None };
        Some(BegunMove { replica: self.record.replica, pod: self.record.id.clone(), to: to.clone() })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    On(NodeName),
    /// Why no other node takes it.
    Nowhere(Vec<Refusal>),
    /// It belongs to no service: nothing would start it elsewhere.
    Pushed,
    /// Its global service has a pod on each node: it goes when no other pod is left.
    Global,
    /// No node is chosen for it: why.
    Stays(String),
}

const MAX_EXAMPLES: usize = 3;

impl Place {
    /// In words; `None` if it can move.
    pub fn why_not(&self) -> Option<String> {
        match self {
            Self::On(_) => None,
            Self::Pushed => Some("it belongs to no service: nothing would start it elsewhere".to_owned()),
            Self::Global => Some("its service is global: it is stopped when all others are gone".to_owned()),
            Self::Stays(why) => Some(why.clone()),
            Self::Nowhere(refusals) if refusals.is_empty() => Some("there is no other node".to_owned()),
            Self::Nowhere(refusals) => {
                let words: Vec<String> = refusals.iter().map(in_words).collect();
                Some(format!("no other node takes it: {}", words.join("; ")))
            }
        }
    }
}

fn in_words(refusal: &Refusal) -> String {
    let example = |one: &NodeRefusal| match one.detail.as_str() {
        "" => one.node.clone(),
        detail => format!("{} {detail}", one.node),
    };
    let examples: Vec<String> = refusal.nodes.iter().take(MAX_EXAMPLES).map(example).collect();
    let more = if refusal.count > examples.len() { " …" } else { "" };
    format!("{} ({}{more})", refusal.reason, examples.join(", "))
}

/// In the order in which they leave: by service, the highest replica first, those of global services last.
/// Each place counts for the next.
/// `profile` is that of pods whose service names none.
pub async fn plan_drain(
    store: &Store,
    policy: &PlacementPolicy,
    profile: PlacementProfile,
    name: &NodeName,
) -> Result<Vec<LeavingPod>, StoreError> {
    let mut payloads = store.queued_on(name).await?;
    payloads.extend(store.container_set(name).await?);
    payloads.sort_unstable();
    payloads.dedup();
    let intake = Intake::read(store, payloads).await?;
    let unreadable = unreadable(&intake);
    let ids: Vec<PodId> =
        intake.pending.iter().map(|pod| pod.payload.id.clone()).chain(unreadable.keys().cloned()).collect();
    let is_here = |record: &PodRecord| {
        matches!(record.phase, Phase::Assigned | Phase::Running) && record.node.as_ref() == Some(name)
    };
    let records = store.pods(&ids).await?.found().into_iter().filter(is_here).collect();
    plan(store, policy, profile, intake, records, Some(name)).await
}

/// Plans where these pods go, which may be on several nodes. Other pods stay.
pub async fn plan_leaving(
    store: &Store,
    policy: &PlacementPolicy,
    profile: PlacementProfile,
    records: Vec<PodRecord>,
) -> Result<Vec<LeavingPod>, StoreError> {
    let mut payloads = Vec::with_capacity(records.len());
    for record in &records {
        payloads.extend(store.payload_of(record).await?.map(|payload| payload.raw));
    }
    let intake = Intake::read(store, payloads).await?;
    plan(store, policy, profile, intake, records, None).await
}

/// `drained` takes no pod.
async fn plan(
    store: &Store,
    policy: &PlacementPolicy,
    profile: PlacementProfile,
    intake: Intake,
    records: Vec<PodRecord>,
    drained: Option<&NodeName>,
) -> Result<Vec<LeavingPod>, StoreError> {
    let mut records: HashMap<PodId, PodRecord> =
        records.into_iter().map(|record| (record.id.clone(), record)).collect();
    let unreadable = unreadable(&intake);
    let mut leaving: Vec<LeavingPod> = unreadable
        .into_iter()
        .filter_map(|(id, why)| {
            let record = records.remove(&id)?;
            Some(LeavingPod { record, place: Place::Stays(why), is_bound: false })
        })
        .collect();
    let pods = intake.pending.into_iter().filter(|pod| records.contains_key(&pod.payload.id));
    let (mut pods, pushed): (Vec<PendingPod>, Vec<PendingPod>) =
        pods.partition(|pod| pod.request.generation.is_some());
    let mut record_of = |pod: &PendingPod| records.remove(&pod.payload.id);
    leaving.extend(pushed.iter().filter_map(|pod| {
        Some(LeavingPod { record: record_of(pod)?, place: Place::Pushed, is_bound: false })
    }));
    pods.sort_by_key(leaves_before);
    let (global, mut pods): (Vec<PendingPod>, Vec<PendingPod>) =
        pods.into_iter().partition(PendingPod::is_global);
    let of_pods: Vec<PodRecord> = pods.iter().filter_map(&mut record_of).collect();
    let places = places(store, policy, profile, &mut pods, &of_pods, drained).await?;
    leaving.extend(pods.iter().zip(of_pods).zip(places).map(|((pod, record), place)| {
        let is_bound = record.node.as_ref().is_some_and(|node| is_bound(pod, node));
        LeavingPod { record, place, is_bound }
    }));
    leaving.extend(global.iter().filter_map(|pod| {
        Some(LeavingPod { record: record_of(pod)?, place: Place::Global, is_bound: false })
    }));
    Ok(leaving)
}

pub(crate) fn leaves_before(pod: &PendingPod) -> (String, std::cmp::Reverse<u32>) {
    (pod.request.name().to_owned(), std::cmp::Reverse(pod.payload.replica))
}

fn unreadable(intake: &Intake) -> HashMap<PodId, String> {
    let invalid = intake.invalid.iter().filter_map(|pod| Some((pod.id.clone()?, pod.reason.clone())));
    let without_spec = intake.without_spec.iter().map(|pod| (pod.payload.id.clone(), pod.message.clone()));
    invalid.chain(without_spec).collect()
}

/// As if none of them were there any more, so that their successors are spread as the service asks.
async fn places(
    store: &Store,
    policy: &PlacementPolicy,
    profile: PlacementProfile,
    pods: &mut [PendingPod],
    records: &[PodRecord],
    drained: Option<&NodeName>,
) -> Result<Vec<Place>, StoreError> {
    let mut placed = read_services(store, profile, pods).await?;
    for (pod, record) in pods.iter_mut().zip(records) {
        record.node.iter().for_each(|node| leave(&mut placed, pod, node));
    }
    let cordon = |node: &mut Node| node.cordoned |= Some(&node.name) == drained;
    let (now, snapshot) = read_snapshot(store, policy, pods, placed, cordon).await?;
    let places = decide_places(&snapshot, now, policy, pods, drained);
    let services = services_of(store, pods).await?;
    let kept = pods.iter().map(|pod| services.get(&pod.payload.service()?).and_then(stays));
    Ok(places.into_iter().zip(kept).map(|(place, kept)| kept.map_or(place, Place::Stays)).collect())
}

async fn services_of(
    store: &Store,
    pods: &[PendingPod],
) -> Result<HashMap<ServiceName, Service>, StoreError> {
    let names: BTreeSet<ServiceName> = pods.iter().filter_map(|pod| pod.payload.service()).collect();
    let names: Vec<ServiceName> = names.into_iter().collect();
    let found = store.services(&names).await?.found().into_iter();
    Ok(found.map(|service| (service.name.clone(), service)).collect())
}

/// Neither updated nor moved.
pub(crate) fn is_calm(service: &Service) -> bool {
    service.rollout.is_settled && service.moves.is_empty()
}

/// Why the service lets none of its pods go.
pub(crate) fn stays(service: &Service) -> Option<String> {
    let (replicas, least) = (service.replicas as usize, service.fields.min_available?);
    let starts_first = service.fields.update_in_force(&service.pod, false).max_surge(replicas) > 0;
    (!starts_first && least.of(replicas) >= replicas).then(|| {
        format!("`min_available: {least}` keeps all {replicas} replicas in service, and none can start beside another")
    })
}

/// The pod counts no more, and goes where its move leads. Its service was read.
pub(crate) fn leave(placed: &mut PlacedPods, pod: &mut PendingPod, node: &NodeName) {
    if let Some(generation) = &pod.request.generation {
        placed.take_out(node, generation);
        let ordinals = placed.ordinals.get_mut(&generation.service);
        ordinals.into_iter().for_each(|places| drop(places.remove(&pod.payload.replica)));
    }
    pod.request.target = pod.moves_to.clone().map(Target::Planned);
}

/// The pods have left, and a drained node is cordoned in the snapshot.
pub(crate) fn decide_places(
    snapshot: &ClusterSnapshot,
    now: RedisMillis,
    policy: &PlacementPolicy,
    pods: &[PendingPod],
    drained: Option<&NodeName>,
) -> Vec<Place> {
    let decisions = decide(snapshot, now, policy, pods);
    let decided = decisions.into_iter().map(|decision| place(decision.outcome, drained));
    // A planned place stays: the next pod may be there already, and the room taken by it.
    let planned = pods.iter().map(|pod| pod.moves_to.clone());
    decided.zip(planned).map(|(place, planned)| planned.map_or(place, Place::On)).collect()
}

fn place(outcome: Outcome, drained: Option<&NodeName>) -> Place {
    match outcome {
        Outcome::Place(target) => Place::On(target.name.clone()),
        Outcome::Unschedulable { refusals } => Place::Nowhere(of_others(&refusals, drained)),
    }
}

/// That the node itself is cordoned is no answer to where a pod could go.
fn of_others(refusals: &[Refusal], drained: Option<&NodeName>) -> Vec<Refusal> {
    let drained = drained.map(NodeName::as_str);
    let of_one = |refusal: &Refusal| {
        let nodes: Vec<_> =
            refusal.nodes.iter().filter(|one| Some(one.node.as_str()) != drained).cloned().collect();
        let count = refusal.count - (refusal.nodes.len() - nodes.len());
        Refusal { reason: refusal.reason.clone(), count, nodes }
    };
    refusals.iter().map(of_one).filter(|refusal| refusal.count > 0).collect()
}

fn is_bound(pod: &PendingPod, node: &NodeName) -> bool {
    let volumes = pod.request.requirements.volumes.as_ref();
    volumes.is_some_and(|volumes| volumes.bound.iter().any(|volume| volume.node == *node))
}
