//! The services of pods that are about to be placed: their rules, and where the pods of small ones are, for
//! schedulers place new ones apart from them.
//!
//! Tests: scripts::scheduling

use std::collections::{BTreeMap, HashMap};

use redis::cmd;

use crate::loaded::fields;
use crate::reply::{names, read};
use crate::service::service_fields;
use crate::{Store, StoreError, keys};
use model::ids::{NodeName, PodId, ServiceName, SpecId};
use model::pod::lifecycle::Phase;
use model::spec::{Placement, PlacementProfile};

type Fields = (Option<String>, Option<Vec<u8>>, Option<Vec<u8>>);

/// Load spreads the pods of larger services, and reading them would cost more.
const MAX_REPLICAS: usize = 256;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlacedService {
    pub placement: Placement,
    /// If the service names one.
    pub profile: Option<PlacementProfile>,
    /// `None` if it has one replica or very many, and no rules that count them.
    pub siblings: Option<Vec<Sibling>>,
    /// Changes with each assignment of a pod, if rules that must hold count them. Older than `siblings`.
    pub mark: String,
}

/// A pod on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sibling {
    pub spec: SpecId,
    pub node: NodeName,
    pub is_stopping: bool,
}

impl Store {
    /// Each service is passed with the number of pods that are about to be placed: if these are all, no
    /// sibling is read.
    ///
    /// # Errors
    /// Broken keys cause none. No node satisfies unreadable rules.
    pub async fn placed_services(
        &self,
        services: &BTreeMap<ServiceName, usize>,
    ) -> Result<HashMap<ServiceName, PlacedService>, StoreError> {
        let all: Vec<&ServiceName> = services.keys().collect();
        let get = |name: &&ServiceName| fields(keys::service(name), &["replicas", "fields", "placed"]);
        let loaded = self.load(&all, get, |_, reply| read("reading services", reply).map(Some)).await?;
        let mut placed = HashMap::new();
        let mut read_too = Vec::new();
        for (name, found) in all.into_iter().zip(loaded.options()) {
            let (replicas, fields, mark): Fields = found.unwrap_or_default();
            let replicas = replicas.and_then(|replicas| replicas.parse().ok()).unwrap_or(0);
            let (placement, profile) = service_fields::placement(&fields.unwrap_or_default());
            let counts = placement.counts_pods();
            let is_counted = counts || (2..=MAX_REPLICAS).contains(&replicas);
            if counts || (is_counted && services[name] < replicas) {
                read_too.push(name);
            }
            let mark = mark.map(|mark| String::from_utf8_lossy(&mark).into_owned()).unwrap_or_default();
            let service = PlacedService { placement, profile, siblings: is_counted.then(Vec::new), mark };
            placed.insert(name.clone(), service);
        }
        for (service, sibling) in self.pods_on_nodes(&read_too).await? {
            let siblings = placed.get_mut(service).and_then(|placed| placed.siblings.as_mut());
            siblings.into_iter().for_each(|siblings| siblings.push(sibling.clone()));
        }
        Ok(placed)
    }

    async fn pods_on_nodes<'a>(
        &self,
        services: &[&'a ServiceName],
    ) -> Result<Vec<(&'a ServiceName, Sibling)>, StoreError> {
        let get = |name: &&ServiceName| cmd("HVALS").arg(keys::slots(name)).to_owned();
        let slots = self.load(services, get, |_, reply| read("reading slots", reply).map(Some)).await?;
        let pods = services.iter().zip(slots.options()).flat_map(|(name, members)| {
            names::<PodId>(members.unwrap_or_default()).into_iter().map(|id| (*name, id))
        });
        let pods: Vec<(&ServiceName, PodId)> = pods.collect();
        let get = |(_, id): &(&ServiceName, PodId)| fields(keys::pod(id), &["phase", "spec", "node"]);
        type PodFields = (Option<String>, Option<String>, Option<String>);
        let read_one = |(service, _): &(&'a ServiceName, PodId), reply| {
            let (phase, spec, node): PodFields = read("reading where a pod is", reply)?;
            let is_stopping = match Phase::parse(&phase.unwrap_or_default()) {
                Some(Phase::Assigned | Phase::Running) => false,
                Some(Phase::Stopping) => true,
                _ => return Ok(None),
            };
            let (spec, node) = (spec.unwrap_or_default().parse().ok(), node.unwrap_or_default().parse().ok());
            Ok(spec.zip(node).map(|(spec, node)| (*service, Sibling { spec, node, is_stopping })))
        };
        Ok(self.load(&pods, get, read_one).await?.found())
    }
}
