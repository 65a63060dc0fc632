//! Where the pods of small services are: schedulers place new ones apart from them.
//!
//! Tests: scripts::scheduling

use std::collections::{BTreeMap, HashMap};

use redis::cmd;

use crate::loaded::{field, fields};
use crate::reply::{names, read};
use crate::{Store, StoreError, keys};
use model::ids::{NodeName, PodId, ServiceName, SpecId};
use model::pod::lifecycle::Phase;

/// Load spreads the pods of larger services, and reading them would cost more.
const MAX_REPLICAS: usize = 256;

impl Store {
    /// Returns the specification and the node of each pod on a node, for services with several replicas. Each
    /// service is passed with the number of pods that are about to be placed: if these are all, none is read.
    ///
    /// # Errors
    /// Broken keys cause none.
    pub async fn placed_siblings(
        &self,
        services: &BTreeMap<ServiceName, usize>,
    ) -> Result<HashMap<ServiceName, Vec<(SpecId, NodeName)>>, StoreError> {
        let all: Vec<&ServiceName> = services.keys().collect();
        let replicas = self
            .load(
                &all,
                |name| field(keys::service(name), "replicas"),
                |_, reply| read("reading replicas", reply),
            )
            .await?;
        let counted = all.into_iter().zip(replicas.options()).filter_map(|(name, replicas)| {
            let replicas = replicas.filter(|replicas| (2..=MAX_REPLICAS).contains(replicas))?;
            Some((name, replicas))
        });
        let counted: Vec<(&ServiceName, usize)> = counted.collect();
        let mut siblings: HashMap<ServiceName, Vec<(SpecId, NodeName)>> =
            counted.iter().map(|(name, _)| ((*name).clone(), Vec::new())).collect();
        let has_others = |(name, replicas): &(&ServiceName, usize)| services[*name] < *replicas;
        let read_too: Vec<&ServiceName> =
            counted.into_iter().filter(has_others).map(|(name, _)| name).collect();
        for (service, spec, node) in self.pods_on_nodes(&read_too).await? {
            siblings.entry(service.clone()).or_default().push((spec, node));
        }
        Ok(siblings)
    }

    async fn pods_on_nodes<'a>(
        &self,
        services: &[&'a ServiceName],
    ) -> Result<Vec<(&'a ServiceName, SpecId, NodeName)>, StoreError> {
        let get = |name: &&ServiceName| cmd("HVALS").arg(keys::slots(name)).to_owned();
        let slots = self.load(services, get, |_, reply| read("reading slots", reply).map(Some)).await?;
        let pods = services.iter().zip(slots.options()).flat_map(|(name, members)| {
            names::<PodId>(members.unwrap_or_default()).into_iter().map(|id| (*name, id))
        });
        let pods: Vec<(&ServiceName, PodId)> = pods.collect();
        let get = |(_, id): &(&ServiceName, PodId)| fields(keys::pod(id), &["phase", "spec", "node"]);
        type Fields = (Option<String>, Option<String>, Option<String>);
        let read_one = |(service, _): &(&'a ServiceName, PodId), reply| {
            let (phase, spec, node): Fields = read("reading where a pod is", reply)?;
            if !matches!(Phase::parse(&phase.unwrap_or_default()), Some(Phase::Assigned | Phase::Running)) {
                return Ok(None);
            }
            let (spec, node) = (spec.unwrap_or_default().parse().ok(), node.unwrap_or_default().parse().ok());
            Ok(spec.zip(node).map(|(spec, node)| (*service, spec, node)))
        };
        Ok(self.load(&pods, get, read_one).await?.found())
    }
}
