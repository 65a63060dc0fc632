//! Where the ordinals of stateful services are: those that have data are there, whether they run or not.
//!
//! Tests: scheduler::tests

use std::collections::{BTreeSet, HashMap};

use model::ids::{NodeName, ServiceName, VolumeName};
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
    let mut known = KnownPlaces::of(pods, placed);
    let names: Vec<VolumeName> = known.volumes().cloned().collect();
    if !names.is_empty() {
        // An unreadable record keeps only its own pod waiting.
        let mut records = store.volumes(&names).await?.into_iter();
        known.add(|_| records.next()?.ok().flatten()?.node);
    }
    Ok(known.places)
}

/// Of the services of these pods.
pub(crate) struct KnownPlaces {
    pub(crate) places: HashMap<ServiceName, OrdinalPlaces>,
    /// Of ordinals without a pod.
    volumes: BTreeSet<(ServiceName, u32, VolumeName)>,
}

impl KnownPlaces {
    pub(crate) fn of(pods: &[PendingPod], placed: &HashMap<ServiceName, PlacedService>) -> Self {
        let mut places: HashMap<ServiceName, OrdinalPlaces> = HashMap::new();
        let mut volumes = BTreeSet::new();
        for pod in pods {
            let Some((ordinal, generation)) =
                pod.request.ordinal.as_ref().zip(pod.request.generation.as_ref())
            else {
                continue;
            };
            let service = &generation.service;
            let new = || placed.get(service).map(with_a_pod).unwrap_or_default();
            let known = places.entry(service.clone()).or_insert_with(new);
            let others = ordinal.index.saturating_sub(MAX_ZONES)..ordinal.index.saturating_add(MAX_ZONES);
            for index in others.filter(|index| !known.contains_key(index)) {
                let names = pod.volumes.iter().filter_map(|claim| volume_of(claim, index));
                volumes.extend(names.map(|name| (service.clone(), index, name)));
            }
        }
        Self { places, volumes }
    }

    pub(crate) fn volumes(&self) -> impl Iterator<Item = &VolumeName> {
        self.volumes.iter().map(|(_, _, name)| name)
    }

    /// `node_of` is asked once for each of [`volumes`](Self::volumes), in their order.
    pub(crate) fn add(&mut self, mut node_of: impl FnMut(&VolumeName) -> Option<NodeName>) {
        for (service, index, name) in &self.volumes {
            if let Some((known, node)) = self.places.get_mut(service).zip(node_of(name)) {
                known.entry(*index).or_insert(node);
            }
        }
    }
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
