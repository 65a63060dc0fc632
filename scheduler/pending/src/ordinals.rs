//! Where the ordinals of stateful services are: those that have data are there, whether they run or not.
//!
//! Tests: scheduler::tests

use std::collections::{BTreeSet, HashMap};

use model::ids::{ServiceName, VolumeName};
use model::service::volume::{VolumeClaim, VolumeScope};
use placement::OrdinalPlaces;
use store::{PlacedService, Store, StoreError};

use crate::intake::PendingPod;

/// Ordinals so far from each other are in different blocks, unless there are more zones.
const MAX_ZONES: u32 = 64;

/// Returns the places for the services of these pods. Those far from these ordinals may be missing.
pub(crate) async fn read_places(
    store: &Store,
    pods: &[PendingPod],
    placed: &HashMap<ServiceName, PlacedService>,
) -> Result<HashMap<ServiceName, OrdinalPlaces>, StoreError> {
    let mut places: HashMap<ServiceName, OrdinalPlaces> = HashMap::new();
    let mut volumes: BTreeSet<(&ServiceName, u32, VolumeName)> = BTreeSet::new();
    for pod in pods {
        let Some((ordinal, generation)) = pod.request.ordinal.as_ref().zip(pod.request.generation.as_ref())
        else {
            continue;
        };
        let service = &generation.service;
        let new = || placed.get(service).map(with_a_pod).unwrap_or_default();
        let known = places.entry(service.clone()).or_insert_with(new);
        let others = ordinal.index.saturating_sub(MAX_ZONES)..ordinal.index.saturating_add(MAX_ZONES);
        for index in others.filter(|index| !known.contains_key(index)) {
            let names = pod.volumes.iter().filter_map(|claim| volume_of(claim, index));
            volumes.extend(names.map(|name| (service, index, name)));
        }
    }
    let names: Vec<VolumeName> = volumes.iter().map(|(_, _, name)| name.clone()).collect();
    if names.is_empty() {
        return Ok(places);
    }
    // An unreadable record keeps only its own pod waiting.
    for ((service, index, _), record) in volumes.into_iter().zip(store.volumes(&names).await?) {
        let node = record.ok().flatten().and_then(|volume| volume.node);
        if let Some((known, node)) = places.get_mut(service).zip(node) {
            known.entry(index).or_insert(node);
        }
    }
    Ok(places)
}

fn with_a_pod(service: &PlacedService) -> OrdinalPlaces {
    let siblings = service.siblings.iter().flatten();
    siblings.map(|sibling| (sibling.replica, sibling.node.clone())).collect()
}

/// That of another ordinal.
fn volume_of(claim: &VolumeClaim, index: u32) -> Option<VolumeName> {
    let VolumeScope::Replica(_) = claim.scope else { return None };
    VolumeName::of_replica(&claim.service, &claim.source, index).ok()
}
