//! The services of pods that are about to be placed: their rules, and where the pods of small ones are, for
//! schedulers place new ones apart from them.
//!
//! Tests: scripts::scheduling

use std::collections::{BTreeMap, BTreeSet, HashMap};

use redis::cmd;

use crate::loaded::fields;
use crate::reply::{names, read};
use crate::service::service_fields::{self, PlacementFields};
use crate::{Store, StoreError, keys};
use model::ids::{NodeName, PodId, ServiceName, SpecId};
use model::pod::lifecycle::Phase;
use model::service::members::Members;
use model::service::moves::Moves;
use model::spec::{Placement, PlacementProfile, Preemption, Priority};

type Text = Option<Vec<u8>>;
type Fields = (Option<String>, Text, Text, Text, Text);

/// Load spreads the pods of larger services, and reading them would cost more.
const MAX_REPLICAS: usize = 256;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlacedService {
    pub placement: Placement,
    /// If the service names one.
    pub profile: Option<PlacementProfile>,
    pub priority: Priority,
    pub preemption: Option<Preemption>,
    /// `None` if it has one replica or very many, no rules that count them, and no ordinals, or is global.
    pub siblings: Option<Vec<Sibling>>,
    /// Changes with each assignment of a pod, if rules that must hold count them, or they are ordinals, and
    /// with the members of a global service. Older than `siblings`.
    pub mark: String,
    pub moves: Moves,
    pub members: Members,
    /// Services whose rules may name this one. Unknown of those that are only named.
    pub named_by: Vec<ServiceName>,
}

impl PlacedService {
    /// Its pods and those of other services count for each other.
    pub fn is_related(&self) -> bool {
        !self.named_by.is_empty() || self.placement.relations().next().is_some()
    }

    /// Services that its rules name, which may be itself.
    pub fn named(&self) -> impl Iterator<Item = ServiceName> {
        self.placement.relations().map(|relation| relation.service)
    }

    pub fn related(&self) -> impl Iterator<Item = ServiceName> {
        self.named_by.iter().cloned().chain(self.named())
    }
}

/// Pods of a service that are about to be placed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitingPods {
    pub count: usize,
    /// Of a stateful service.
    pub are_ordinals: bool,
}

impl From<usize> for WaitingPods {
    fn from(count: usize) -> Self {
        Self { count, are_ordinals: false }
    }
}

impl WaitingPods {
    /// Whether the siblings of these pods are read; `None` if they do not count.
    pub fn reads_siblings(self, service: &PlacedService, replicas: usize, is_global: bool) -> Option<bool> {
        let counts = service.placement.counts_pods();
        let is_small = !is_global && (2..=MAX_REPLICAS).contains(&replicas);
        let is_counted = counts || self.are_ordinals || is_small;
        let reads = is_counted.then_some(counts || self.count < replicas);
        if service.is_related() { Some(true) } else { reads }
    }
}

/// A pod on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sibling {
    pub spec: SpecId,
    pub replica: u32,
    pub node: NodeName,
    /// It is being stopped, or moves to another node.
    pub is_leaving: bool,
}

impl Store {
    /// Returns these services, and those to which they have relations. Reads no siblings of a service all of
    /// whose pods are about to be placed, unless it has relations.
    ///
    /// # Errors
    /// Broken keys cause none. No node satisfies unreadable rules.
    pub async fn placed_services(
        &self,
        services: &BTreeMap<ServiceName, WaitingPods>,
    ) -> Result<HashMap<ServiceName, PlacedService>, StoreError> {
        if services.is_empty() {
            return Ok(HashMap::new());
        }
        let names: Vec<ServiceName> = services.keys().cloned().collect();
        let (mut placed, named_by) = tokio::try_join!(self.rules_of(&names), self.named_by(&names))?;
        let mut read_too = Vec::new();
        for ((name, named_by), (service, replicas)) in names.iter().zip(named_by).zip(&mut placed) {
            service.named_by = named_by;
            let is_global = !service.members.as_stored().is_empty();
            let reads = services[name].reads_siblings(service, *replicas, is_global);
            service.siblings = reads.map(|_| Vec::new());
            read_too.extend((reads == Some(true)).then_some(name));
        }
        let others: BTreeSet<ServiceName> =
            placed.iter().flat_map(|(service, _)| service.related()).collect();
        let others: Vec<ServiceName> =
            others.into_iter().filter(|name| !services.contains_key(name)).collect();
        let of_others = if others.is_empty() { Vec::new() } else { self.rules_of(&others).await? };
        let of_others =
            of_others.into_iter().map(|(service, _)| PlacedService { siblings: Some(Vec::new()), ..service });
        read_too.extend(&others);
        let placed = placed.into_iter().map(|(service, _)| service).chain(of_others);
        let mut placed: HashMap<ServiceName, PlacedService> =
            names.iter().chain(&others).cloned().zip(placed).collect();
        for (service, id, sibling) in self.pods_on_nodes(&read_too).await? {
            let Some(PlacedService { siblings: Some(siblings), moves, .. }) = placed.get_mut(service) else {
                continue;
            };
            let is_leaving = sibling.is_leaving || moves.is_moved(&id);
            siblings.push(Sibling { is_leaving, ..sibling });
        }
        Ok(placed)
    }

    /// With the numbers of replicas.
    async fn rules_of(&self, services: &[ServiceName]) -> Result<Vec<(PlacedService, usize)>, StoreError> {
        let names = ["replicas", "fields", "placed", "moves", "members"];
        let get = |name: &ServiceName| fields(keys::service(name), &names);
        let loaded = self.load(services, get, |_, reply| read("reading services", reply).map(Some)).await?;
        let rules = |found: Option<Fields>| {
            let (replicas, fields, mark, moves, members) = found.unwrap_or_default();
            let replicas = replicas.and_then(|replicas| replicas.parse().ok()).unwrap_or(0);
            let PlacementFields { placement, profile, priority, preemption } =
                service_fields::placement(&fields.unwrap_or_default());
            let text =
                |field: Option<Vec<u8>>| String::from_utf8_lossy(&field.unwrap_or_default()).into_owned();
            let (mark, moves) = (text(mark), Moves::from_stored(text(moves)));
            let members = Members::from_stored(text(members));
            let (siblings, named_by) = (None, Vec::new());
            let service = PlacedService {
                placement,
                profile,
                priority,
                preemption,
                siblings,
                mark,
                moves,
                members,
                named_by,
            };
            (service, replicas)
        };
        Ok(loaded.options().map(rules).collect())
    }

    /// Services whose rules name each of these.
    async fn named_by(&self, services: &[ServiceName]) -> Result<Vec<Vec<ServiceName>>, StoreError> {
        let names: Vec<&str> = services.iter().map(ServiceName::as_str).collect();
        let get = |names: &Vec<&str>| fields(keys::RELATIONS.to_owned(), names);
        let read_all = |_: &Vec<&str>, reply| read::<Vec<Text>>("reading relations", reply).map(Some);
        let owners = self.load(&[names], get, read_all).await?.options().next().flatten().unwrap_or_default();
        let of_one = |owners: Text| {
            let owners = String::from_utf8_lossy(&owners.unwrap_or_default()).into_owned();
            owners.split_whitespace().filter_map(|owner| ServiceName::new(owner).ok()).collect()
        };
        let known = owners.into_iter().map(of_one);
        Ok(known.chain(std::iter::repeat_with(Vec::new)).take(services.len()).collect())
    }

    async fn pods_on_nodes<'a>(
        &self,
        services: &[&'a ServiceName],
    ) -> Result<Vec<(&'a ServiceName, PodId, Sibling)>, StoreError> {
        let get = |name: &&ServiceName| cmd("HVALS").arg(keys::slots(name)).to_owned();
        let slots = self.load(services, get, |_, reply| read("reading slots", reply).map(Some)).await?;
        let pods = services.iter().zip(slots.options()).flat_map(|(name, members)| {
            names::<PodId>(members.unwrap_or_default()).into_iter().map(|id| (*name, id))
        });
        let pods: Vec<(&ServiceName, PodId)> = pods.collect();
        let get =
            |(_, id): &(&ServiceName, PodId)| fields(keys::pod(id), &["phase", "spec", "node", "replica"]);
        type PodFields = (Option<String>, Option<String>, Option<String>, Option<String>);
        let read_one = |(service, id): &(&'a ServiceName, PodId), reply| {
            let (phase, spec, node, replica): PodFields = read("reading where a pod is", reply)?;
            let is_leaving = match Phase::parse(&phase.unwrap_or_default()) {
                Some(Phase::Assigned | Phase::Running) => false,
                Some(Phase::Stopping) => true,
                _ => return Ok(None),
            };
            let (spec, node) = (spec.unwrap_or_default().parse().ok(), node.unwrap_or_default().parse().ok());
            let replica = replica.and_then(|replica| replica.parse().ok()).unwrap_or_default();
            let sibling = |(spec, node)| Sibling { spec, replica, node, is_leaving };
            Ok(spec.zip(node).map(|found| (*service, id.clone(), sibling(found))))
        };
        Ok(self.load(&pods, get, read_one).await?.found())
    }
}
