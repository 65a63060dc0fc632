//! Reads the services of a batch: their rules for nodes, and the pods of their generations by node, so that
//! new ones go elsewhere.
//!
//! Only schedulers know these numbers: they are soft. Another scheduler may place a pod at the same time; in
//! a small cluster the node then refuses, see `MAX_EXACT_SPREAD` of the scheduler.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use model::ids::ServiceName;
use placement::{Generation, NodeRules, PlacedPods};
use store::{PlacedService, Store, StoreError};

use crate::intake::PendingPod;

/// Sets the rules of each pod. Returns where its siblings are.
pub async fn read_services(store: &Store, pods: &mut [PendingPod]) -> Result<PlacedPods, StoreError> {
    let mut waiting: BTreeMap<Generation, usize> = BTreeMap::new();
    for run in pods.chunk_by(|a, b| generation_of(a) == generation_of(b)) {
        if let Some(generation) = run.first().and_then(generation_of) {
            *waiting.entry(generation.clone()).or_default() += run.len();
        }
    }
    let mut services: BTreeMap<ServiceName, usize> = BTreeMap::new();
    for (generation, pods) in &waiting {
        let fewest = services.entry(generation.service.clone()).or_insert(*pods);
        *fewest = (*fewest).min(*pods);
    }
    let placed = store.placed_services(&services).await?;
    set_rules(pods, &placed);
    let of_one = |generation: Generation| {
        let mut nodes = BTreeMap::new();
        for (spec, node) in placed.get(&generation.service)?.siblings.as_ref()? {
            if *spec == generation.spec {
                *nodes.entry(node.clone()).or_default() += 1;
            }
        }
        Some((generation, nodes))
    };
    Ok(waiting.into_keys().filter_map(of_one).collect())
}

/// The pods of a service share them.
fn set_rules(pods: &mut [PendingPod], placed: &HashMap<ServiceName, PlacedService>) {
    let with_rules =
        placed.iter().filter_map(|(name, of_one)| Some((name, NodeRules::of(&of_one.placement)?)));
    let rules: HashMap<&ServiceName, Arc<NodeRules>> = with_rules.collect();
    if rules.is_empty() && pods.iter().all(|pod| pod.request.requirements.rules.is_none()) {
        return;
    }
    for pod in pods {
        let service = pod.request.generation.as_ref().map(|generation| &generation.service);
        pod.request.requirements.rules = service.and_then(|service| rules.get(service).cloned());
    }
}

fn generation_of(pod: &PendingPod) -> Option<&Generation> {
    pod.request.generation.as_ref()
}
