//! Plans the drain of a node: where each of its pods would go, by the filters and scores that decide.
//!
//! A schedulers' loop stores the plan as moves, and the API shows it: before a drain as what it would do.

use std::collections::{BTreeSet, HashMap};

use model::ids::{NodeName, PodId, ServiceName};
use model::node::Node;
use model::pod::lifecycle::Phase;
use model::pod::{NodeRefusal, PodRecord, Refusal};
use model::spec::PlacementProfile;
use placement::{ClusterSnapshot, Outcome, PlacementPolicy, Target, decide};
use store::{Store, StoreError};

use crate::intake::{Intake, PendingPod};
use crate::needs::read_needs;
use crate::services::read_services;

/// A pod that runs on the node, or is about to.
#[derive(Debug, Clone, PartialEq)]
pub struct LeavingPod {
    pub record: PodRecord,
    pub place: Place,
    /// Its data is on the node: no other one could start it.
    pub is_bound: bool,
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
    /// No node can be chosen for it: why.
    Unreadable(String),
}

const MAX_EXAMPLES: usize = 3;

impl Place {
    /// In words; `None` if it can move.
    pub fn why_not(&self) -> Option<String> {
        match self {
            Self::On(_) => None,
            Self::Pushed => Some("it belongs to no service: nothing would start it elsewhere".to_owned()),
            Self::Global => Some("its service is global: it is stopped when all others are gone".to_owned()),
            Self::Unreadable(why) => Some(why.clone()),
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
    let mut records: HashMap<PodId, PodRecord> =
        store.pods(&ids).await?.found().into_iter().map(|record| (record.id.clone(), record)).collect();
    records.retain(|_, record| {
        let is_here = matches!(record.phase, Phase::Assigned | Phase::Running);
        is_here && record.node.as_ref() == Some(name)
    });
    let mut leaving: Vec<LeavingPod> = unreadable
        .into_iter()
        .filter_map(|(id, why)| {
            let record = records.remove(&id)?;
            Some(LeavingPod { record, place: Place::Unreadable(why), is_bound: false })
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
    let places = places(store, policy, profile, name, &mut pods).await?;
    leaving.extend(pods.iter().zip(places).filter_map(|(pod, place)| {
        Some(LeavingPod { record: record_of(pod)?, place, is_bound: is_bound(pod, name) })
    }));
    leaving.extend(global.iter().filter_map(|pod| {
        Some(LeavingPod { record: record_of(pod)?, place: Place::Global, is_bound: false })
    }));
    Ok(leaving)
}

fn leaves_before(pod: &PendingPod) -> (String, std::cmp::Reverse<u32>) {
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
    name: &NodeName,
    pods: &mut [PendingPod],
) -> Result<Vec<Place>, StoreError> {
    let mut placed = read_services(store, profile, pods).await?;
    let planned = planned(store, pods).await?;
    for (pod, planned) in pods.iter_mut().zip(&planned) {
        if let Some(generation) = &pod.request.generation {
            placed.take_out(name, generation);
            let ordinals = placed.ordinals.get_mut(&generation.service);
            ordinals.into_iter().for_each(|places| places.retain(|_, node| node != name));
        }
        pod.request.target = planned.clone().map(Target::Planned);
    }
    let names = store.node_names().await?;
    let (now, nodes) = (store.redis_now().await?, store.nodes(&names).await?.found());
    let mut snapshot = ClusterSnapshot::new(policy.weights);
    for node in nodes {
        let cordoned = node.cordoned || node.name == *name;
        snapshot.upsert(Node { cordoned, ..node });
    }
    snapshot.set_placed(placed);
    if pods.iter().any(|pod| pod.request.requirements.profile == PlacementProfile::Fragmentation) {
        snapshot.set_needs(read_needs(store).await?);
    }
    let decisions = decide(&snapshot, now, policy, pods);
    let decided = decisions.into_iter().map(|decision| place(decision.outcome, name));
    // A planned place stays: the next pod may be there already, and the room taken by it.
    Ok(decided.zip(planned).map(|(place, planned)| planned.map_or(place, Place::On)).collect())
}

/// Where the moves of their services lead.
async fn planned(store: &Store, pods: &[PendingPod]) -> Result<Vec<Option<NodeName>>, StoreError> {
    let names: BTreeSet<ServiceName> = pods.iter().filter_map(|pod| pod.payload.service()).collect();
    let names: Vec<ServiceName> = names.into_iter().collect();
    let services = store.services(&names).await?.found();
    let of_pod = |pod: &PendingPod| {
        let service = services.iter().find(|one| Some(&one.name) == pod.payload.service().as_ref())?;
        let planned = service.moves.by_replica().get(&pod.payload.replica);
        planned.filter(|one| one.pod == pod.payload.id).map(|one| one.to.clone())
    };
    Ok(pods.iter().map(of_pod).collect())
}

fn place(outcome: Outcome, leaving: &NodeName) -> Place {
    match outcome {
        Outcome::Place(target) => Place::On(target.name.clone()),
        Outcome::Unschedulable { refusals } => Place::Nowhere(of_others(&refusals, leaving)),
    }
}

/// That the node itself is cordoned is no answer to where a pod could go.
fn of_others(refusals: &[Refusal], leaving: &NodeName) -> Vec<Refusal> {
    let of_one = |refusal: &Refusal| {
        let nodes: Vec<_> =
            refusal.nodes.iter().filter(|one| one.node != leaving.as_str()).cloned().collect();
        let count = refusal.count - (refusal.nodes.len() - nodes.len());
        Refusal { reason: refusal.reason.clone(), count, nodes }
    };
    refusals.iter().map(of_one).filter(|refusal| refusal.count > 0).collect()
}

fn is_bound(pod: &PendingPod, node: &NodeName) -> bool {
    let volumes = pod.request.requirements.volumes.as_ref();
    volumes.is_some_and(|volumes| volumes.bound.iter().any(|volume| volume.node == *node))
}
