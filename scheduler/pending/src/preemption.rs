//! Finds pods of a lower priority that could be stopped for one that fits nowhere.
//!
//! It frees amounts and slots, no host ports or ids of named resources. Of the services that would lose a pod
//! all that matters is seen before: the script that stops them compares it.
//!
//! Tests: placement::preempt, scheduler::tests::preemption

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use model::RedisMillis;
use model::ids::{NodeName, PodId, ServiceName};
use model::node::{Node, NodeKind, NodeState, Resource, Resources};
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::service::{Service, ServiceState};
use model::spec::{Kind, Preemption, Priority};
use placement::{
    ClusterSnapshot, FullNode, Outcome, PlacementPolicy, PodRequest, Resident, Target, choose_victims, decide,
};
use store::{PlannedPreemption, PreemptedPod, Store, StoreError};

use crate::intake::{Intake, PendingPod};

/// Their pods are read.
const MAX_NODES: usize = 32;
/// A pod that takes longer to stop is not stopped for another one.
const MAX_GRACE: Duration = Duration::from_secs(600);
/// For workers that are busy, and longer than the pod's backoff: a lost hint does not cost it the room.
const MORE_TIME: Duration = Duration::from_secs(120);
/// Each finds services whose pods have to be counted.
const MAX_ROUNDS: usize = 5;

/// Goes on behind the nodes that it has looked at, pod after pod.
#[derive(Debug, Default)]
pub struct PreemptionSearch {
    after: Option<NodeName>,
}

struct Residents {
    /// The service of the waiting pod.
    own: Service,
    /// The services of a lower priority.
    services: HashMap<ServiceName, Service>,
    records: HashMap<PodId, PodRecord>,
    nodes: Vec<FullNode>,
    /// By node: what pods have that are being stopped.
    leaving: HashMap<NodeName, Resources>,
}

impl PreemptionSearch {
    /// The pod fits on no node of the snapshot.
    pub async fn find(
        &mut self,
        store: &Store,
        (snapshot, now, policy): (&ClusterSnapshot, RedisMillis, &PlacementPolicy),
        pod: &PendingPod,
    ) -> Result<Option<PlannedPreemption>, StoreError> {
        let nodes = self.next_nodes(snapshot, now, &pod.request);
        let nodes = emptied_fit(nodes, (snapshot, now, policy), &pod.request);
        match read_residents(store, &nodes, pod, now).await? {
            Some(found) => choose(store, found, &nodes, &pod.request.requirements.resources()).await,
            None => Ok(None),
        }
    }

    /// Large enough, and may get pods.
    fn next_nodes<'a>(
        &mut self,
        snapshot: &'a ClusterSnapshot,
        now: RedisMillis,
        request: &PodRequest,
    ) -> Vec<&'a Node> {
        let needed = request.requirements.resources();
        let only = request.target.as_ref().and_then(|target| match target {
            Target::Only(node) => Some(node),
            Target::Planned(_) | Target::Nowhere => None,
        });
        let may = |node: &&Node| {
            node.kind == NodeKind::Kubeleet
                && node.state == NodeState::Alive
                && !node.cordoned
                && node.nominated(now).is_none()
                && only.is_none_or(|only| *only == node.name)
                && Resource::ALL.into_iter().all(|of| needed.get(of) <= node.facts.capacity.get(of))
        };
        let (before, behind): (Vec<&Node>, Vec<&Node>) = snapshot
            .nodes()
            .filter(may)
            .partition(|node| self.after.as_ref().is_some_and(|after| node.name <= *after));
        let nodes: Vec<&Node> = behind.into_iter().chain(before).take(MAX_NODES).collect();
        if only.is_none() {
            self.after = nodes.last().map(|node| node.name.clone());
        }
        nodes
    }
}

/// Nodes that could run the pod if they had no other: all filters and rules hold but those of room.
fn emptied_fit<'a>(
    nodes: Vec<&'a Node>,
    (snapshot, now, policy): (&ClusterSnapshot, RedisMillis, &PlacementPolicy),
    request: &PodRequest,
) -> Vec<&'a Node> {
    let mut emptied = snapshot.clone();
    for node in &nodes {
        emptied.upsert(Node { used: Resources::default(), ..(*node).clone() });
    }
    let fits = |node: &&Node| {
        let request = PodRequest { target: Some(Target::Only(node.name.clone())), ..request.clone() };
        matches!(decide(&emptied, now, policy, &[request])[..], [ref one] if matches!(one.outcome, Outcome::Place(_)))
    };
    nodes.into_iter().filter(fits).collect()
}

/// `None` if the pod's service wants no preemption any more.
async fn read_residents(
    store: &Store,
    nodes: &[&Node],
    pod: &PendingPod,
    now: RedisMillis,
) -> Result<Option<Residents>, StoreError> {
    let Some(own) = pod.payload.service() else { return Ok(None) };
    let mut payloads = Vec::new();
    for node in nodes {
        payloads.extend(store.queued_on(&node.name).await?);
        payloads.extend(store.container_set(&node.name).await?);
    }
    payloads.sort_unstable();
    payloads.dedup();
    let pods = Intake::read(store, payloads).await?.pending;
    let others = pods.iter().filter_map(|pod| pod.payload.service());
    let names: BTreeSet<ServiceName> = others.chain([own.clone()]).collect();
    let names: Vec<ServiceName> = names.into_iter().collect();
    // Before the pods: their `step` tells whether something has changed since.
    let services = store.services(&names).await?.found().into_iter();
    let mut services: HashMap<ServiceName, Service> =
        services.map(|service| (service.name.clone(), service)).collect();
    let Some(own) = services.remove(&own) else { return Ok(None) };
    let priority = own.fields.priority.unwrap_or_default();
    if !Preemption::applies(own.fields.preemption, priority) {
        return Ok(None);
    }
    services.retain(|_, service| gives_way(service, priority));
    let may_go = |pod: &&PendingPod| {
        let service = pod.payload.service().and_then(|name| services.get(&name));
        let has_data = pod.volumes.iter().any(|claim| !claim.scope.is_shared());
        service.is_some_and(|of| !of.moves.by_replica().contains_key(&pod.payload.replica))
            && !pod.is_global()
            && !has_data
    };
    let may_go: HashSet<&PodId> = pods.iter().filter(may_go).map(|pod| &pod.payload.id).collect();
    let ids: Vec<PodId> = pods.iter().map(|pod| pod.payload.id.clone()).collect();
    let (mut records, mut leaving) = (HashMap::new(), HashMap::new());
    for record in store.pods(&ids).await?.found() {
        match (record.phase, &record.node) {
            (Phase::Assigned | Phase::Running, _) if may_go.contains(&record.id) => {
                records.insert(record.id.clone(), record);
            }
            (Phase::Stopping, Some(node)) if now < record.since + MAX_GRACE.as_millis() as RedisMillis => {
                let of_node: &mut Resources = leaving.entry(node.clone()).or_default();
                *of_node = of_node.saturating_add(Resources { pods: 1, ..record.request });
            }
            _ => {}
        }
    }
    let full_node = |node: &&Node| FullNode {
        name: node.name.clone(),
        capacity: node.facts.capacity,
        used: node.used,
        residents: records.values().filter_map(|record| resident(record, node, &services)).collect(),
    };
    let nodes = nodes.iter().map(full_node).collect();
    Ok(Some(Residents { own, services, records, nodes, leaving }))
}

fn gives_way(service: &Service, below: Priority) -> bool {
    service.state == ServiceState::Active
        && service.fields.priority.unwrap_or_default() < below
        && grace(service) <= MAX_GRACE
}

/// Until a pod of the service has stopped.
fn grace(service: &Service) -> Duration {
    let drain = service.pod.drain.map(|drain| drain.duration()).unwrap_or_default();
    service.pod.stop_grace_period.duration() + drain
}

fn resident(record: &PodRecord, node: &Node, services: &HashMap<ServiceName, Service>) -> Option<Resident> {
    let service = services.get(record.service.as_ref()?)?;
    (record.node.as_ref() == Some(&node.name)).then(|| Resident {
        pod: record.id.clone(),
        service: service.name.clone(),
        priority: service.fields.priority.unwrap_or_default(),
        request: Resources { pods: 1, ..record.request },
        serves: record.is_ready(),
    })
}

async fn choose(
    store: &Store,
    found: Residents,
    nodes: &[&Node],
    request: &Resources,
) -> Result<Option<PlannedPreemption>, StoreError> {
    let Residents { own, services, records, nodes: full, leaving } = found;
    // Stopping others would be too many.
    if full.iter().any(|node| leaving.get(&node.name).is_some_and(|leaving| node.has_room(request, leaving)))
    {
        return Ok(None);
    }
    let priority = own.fields.priority.unwrap_or_default();
    // As if all replicas were in service, until they are counted.
    let mut spare: HashMap<ServiceName, usize> = services
        .iter()
        .map(|(name, service)| (name.clone(), spare(service, service.replicas as usize)))
        .collect();
    let mut counted: BTreeSet<ServiceName> = BTreeSet::new();
    for _ in 0..MAX_ROUNDS {
        let Some((node, victims)) = choose_victims(request, priority, &full, &spare) else {
            return Ok(None);
        };
        let names: BTreeSet<&ServiceName> = victims.iter().map(|victim| &victim.service).collect();
        let new: Vec<&ServiceName> = names.into_iter().filter(|name| !counted.contains(*name)).collect();
        if new.is_empty() {
            let node = nodes.iter().find(|one| one.name == node.name);
            return Ok(node.and_then(|node| preemption(node, &own, &victims, (&services, &records))));
        }
        for name in new {
            spare.insert(name.clone(), spare_now(store, &services[name]).await?);
            counted.insert(name.clone());
        }
    }
    Ok(None)
}

async fn spare_now(store: &Store, service: &Service) -> Result<usize, StoreError> {
    if service.kind() == Kind::Job {
        return Ok(spare(service, 0));
    }
    let slots = store.slots(&service.name).await?;
    let ids: Vec<PodId> = slots.into_iter().map(|(_, id)| id).collect();
    let ready = store.pods(&ids).await?.found().into_iter().filter(PodRecord::is_ready);
    let replicas: BTreeSet<u32> = ready.map(|record| record.replica).collect();
    Ok(spare(service, replicas.len()))
}

/// How many of these replicas in service may go. Without `min_available` a quarter of all, at least one. The
/// pods of a job go on elsewhere.
fn spare(service: &Service, serving: usize) -> usize {
    if service.kind() == Kind::Job {
        return usize::MAX;
    }
    let replicas = service.replicas as usize;
    let quarter = replicas.saturating_sub((replicas / 4).max(1));
    serving.saturating_sub(service.fields.min_available.map_or(quarter, |least| least.of(replicas)))
}

fn preemption(
    node: &Node,
    own: &Service,
    victims: &[&Resident],
    (services, records): (&HashMap<ServiceName, Service>, &HashMap<PodId, PodRecord>),
) -> Option<PlannedPreemption> {
    let victim = |resident: &&Resident| {
        let service = services.get(&resident.service)?;
        Some(PreemptedPod {
            pod: resident.pod.clone(),
            assignment: records.get(&resident.pod)?.assignment.clone()?,
            service: service.name.clone(),
            step: service.rollout.step.clone(),
            revision: service.revision,
        })
    };
    let longest = victims.iter().filter_map(|victim| services.get(&victim.service)).map(grace).max();
    Some(PlannedPreemption {
        node: node.name.clone(),
        incarnation: node.incarnation.clone()?,
        revision: own.revision,
        victims: victims.iter().map(victim).collect::<Option<Vec<_>>>()?,
        kept: longest.unwrap_or_default() + MORE_TIME,
    })
}
