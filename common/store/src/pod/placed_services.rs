//! The services of pods that are about to be placed: their rules, and where the pods of small ones are, for
//! schedulers place new ones apart from them.
//!
//! Tests: scripts::scheduling

use std::collections::{BTreeMap, HashMap};

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
    pub fn reads_siblings(self, placement: &Placement, replicas: usize, is_global: bool) -> Option<bool> {
        let counts = placement.counts_pods();
        let is_small = !is_global && (2..=MAX_REPLICAS).contains(&replicas);
        let is_counted = counts || self.are_ordinals || is_small;
        is_counted.then_some(counts || self.count < replicas)
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
    /// Reads no siblings of a service all of whose pods are about to be placed.
    ///
    /// # Errors
    /// Broken keys cause none. No node satisfies unreadable rules.
    pub async fn placed_services(
        &self,
        services: &BTreeMap<ServiceName, WaitingPods>,
    ) -> Result<HashMap<ServiceName, PlacedService>, StoreError> {
        let all: Vec<&ServiceName> = services.keys().collect();
        let names = ["replicas", "fields", "placed", "moves", "members"];
        let get = |name: &&ServiceName| fields(keys::service(name), &names);
        let loaded = self.load(&all, get, |_, reply| read("reading services", reply).map(Some)).await?;
        let mut placed = HashMap::new();
        let mut read_too = Vec::new();
        for (name, found) in all.into_iter().zip(loaded.options()) {
            let (replicas, fields, mark, moves, members): Fields = found.unwrap_or_default();
            let replicas = replicas.and_then(|replicas| replicas.parse().ok()).unwrap_or(0);
            let PlacementFields { placement, profile, priority, preemption } =
                service_fields::placement(&fields.unwrap_or_default());
            let is_global = members.is_some();
            let reads_siblings = services[name].reads_siblings(&placement, replicas, is_global);
            if reads_siblings == Some(true) {
                read_too.push(name);
            }
            let text =
                |field: Option<Vec<u8>>| String::from_utf8_lossy(&field.unwrap_or_default()).into_owned();
            let (mark, moves) = (text(mark), Moves::from_stored(text(moves)));
            let members = Members::from_stored(text(members));
            let siblings = reads_siblings.map(|_| Vec::new());
            let service =
                PlacedService { placement, profile, priority, preemption, siblings, mark, moves, members };
            placed.insert(name.clone(), service);
        }
        for (service, id, sibling) in self.pods_on_nodes(&read_too).await? {
            let Some(PlacedService { siblings: Some(siblings), moves, .. }) = placed.get_mut(service) else {
                continue;
            };
            let is_leaving = sibling.is_leaving || moves.is_moved(&id);
            siblings.push(Sibling { is_leaving, ..sibling });
        }
        Ok(placed)
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
