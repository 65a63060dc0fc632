//! Counts the pods of the generations in a batch by node, so that new ones go elsewhere.
//!
//! Only schedulers know these numbers: they are soft. Another scheduler may place a pod at the same time; in
//! a small cluster the node then refuses, see `MAX_EXACT_SPREAD`.

use std::collections::BTreeMap;

use model::ids::ServiceName;
use placement::{Generation, PlacedPods};
use store::{Store, StoreError};

use crate::intake::PendingPod;

pub(crate) async fn placed_siblings(store: &Store, pods: &[PendingPod]) -> Result<PlacedPods, StoreError> {
    let runs = pods.chunk_by(|a, b| generation_of(a) == generation_of(b));
    let mut waiting: BTreeMap<&Generation, usize> = BTreeMap::new();
    for run in runs {
        if let Some(generation) = run.first().and_then(generation_of) {
            *waiting.entry(generation).or_default() += run.len();
        }
    }
    let mut services: BTreeMap<ServiceName, usize> = BTreeMap::new();
    for (generation, pods) in &waiting {
        let fewest = services.entry(generation.service.clone()).or_insert(*pods);
        *fewest = (*fewest).min(*pods);
    }
    let placed = store.placed_siblings(&services).await?;
    let of_one = |generation: &Generation| {
        let mut nodes = BTreeMap::new();
        for (spec, node) in placed.get(&generation.service)? {
            if *spec == generation.spec {
                *nodes.entry(node.clone()).or_default() += 1;
            }
        }
        Some((generation.clone(), nodes))
    };
    Ok(waiting.into_keys().filter_map(of_one).collect())
}

fn generation_of(pod: &PendingPod) -> Option<&Generation> {
    pod.request.generation.as_ref()
}
