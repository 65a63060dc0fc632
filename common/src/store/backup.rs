//! What `kubeleet backup` reads: services with their specifications and pods, one service after the other.

use super::{Store, StoreError};
use crate::ids::{PodId, ServiceName, SpecId};
use crate::lifecycle::Phase;
use crate::pod::PodRecord;
use crate::saved_state::{SavedPod, SavedSpec, SavedState};

/// How often a service is read again that changes while it is read.
const ATTEMPTS: usize = 5;

impl Store {
    /// Returns a service with its specifications and the pods in its slots; `None` if there is none. If it
    /// changes while it is read it is read again, so that record, slots and pods belong together.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn backup_service(&self, name: &ServiceName) -> Result<Option<SavedState>, StoreError> {
        let mut attempt = 1;
        loop {
            let Some(service) = self.saved_service(name).await? else { return Ok(None) };
            let slots = self.slots(name).await?;
            let ids: Vec<PodId> = slots.iter().map(|(_, id)| id.clone()).collect();
            let mut saved = self.backup_pods(&ids).await?;
            let is_same = self.saved_service(name).await?.as_ref() == Some(&service)
                && self.slots(name).await? == slots;
            if !is_same && attempt < ATTEMPTS {
                attempt += 1;
                continue;
            }
            if let Some(spec) = service.spec() {
                saved.add_spec(spec);
            }
            saved.add_service(service);
            return Ok(Some(saved));
        }
    }

    /// Returns these pods and their specifications. Pods that were stopped, and those whose record is missing
    /// or broken, are left out.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn backup_pods(&self, ids: &[PodId]) -> Result<SavedState, StoreError> {
        let mut saved = SavedState::default();
        let records = self.pods_each(ids).await?.into_iter().filter_map(|record| record.ok().flatten());
        for record in records.filter(|record| record.phase != Phase::Stopped) {
            let Some(payload) = self.payload_of(&record).await? else { continue };
            if let Some(spec) = &record.spec {
                let (id, generation) = (spec.clone(), record.generation);
                saved.add_spec(SavedSpec { id, generation, text: String::new() });
            }
            saved.pods.push(saved_pod(record, String::from_utf8_lossy(&payload.raw).into_owned()));
        }
        let ids: Vec<SpecId> = saved.specs.keys().cloned().collect();
        let mut texts = self.spec_texts(&ids).await?;
        saved.specs.retain(|id, spec| {
            spec.text = texts.remove(id).unwrap_or_default();
            !spec.text.is_empty()
        });
        Ok(saved)
    }
}

fn saved_pod(record: PodRecord, payload: String) -> SavedPod {
    SavedPod {
        payload,
        service: record.service,
        phase: record.phase,
        node: record.node,
        assignment: record.assignment,
        generation: record.generation,
        restarts: record.restarts,
        address: record.address,
        published_ports: record.published_ports,
        created_at: record.created_at,
    }
}
