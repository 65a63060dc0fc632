//! Reads for `kubeleet backup`, one service after the other.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::recovery::saved_state::{SavedLogin, SavedPod, SavedService, SavedSpec, SavedState, SavedValue};
use crate::reply::{corrupt, word};
use crate::scripts::{registry_restore, value_restore};
use crate::{Store, StoreError, keys};
use model::ids::{PodId, RegistryHost, ServiceName, SpecId, ValueName};
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::value::ValueKind;

const ATTEMPTS: usize = 5;

impl Store {
    /// Retries until record, slots and pods are consistent.
    pub async fn backup_service(&self, name: &ServiceName) -> Result<Option<SavedState>, StoreError> {
        let mut attempt = 1;
        loop {
            let Some(service) = self.saved_service_and_results(name).await? else { return Ok(None) };
            let slots = self.slots(name).await?;
            let ids: Vec<PodId> = slots.iter().map(|(_, id)| id.clone()).collect();
            let mut saved = self.backup_pods(&ids).await?;
            let is_same = self.saved_service_and_results(name).await?.as_ref() == Some(&service)
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

    async fn saved_service_and_results(
        &self,
        name: &ServiceName,
    ) -> Result<Option<SavedService>, StoreError> {
        let Some(mut service) = self.saved_service(name).await? else { return Ok(None) };
        if service.is_job() {
            (service.done, service.tries) = self.saved_results(name).await?;
        }
        Ok(Some(service))
    }

    /// Leaves out stopped pods and broken records.
    pub async fn backup_pods(&self, ids: &[PodId]) -> Result<SavedState, StoreError> {
        let mut saved = SavedState::default();
        let records = self.pods(ids).await?.found();
        for record in records.into_iter().filter(|record| record.phase != Phase::Stopped) {
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

impl Store {
    /// Returns it encrypted; `None` if it is gone or broken.
    pub async fn backup_value(
        &self,
        kind: ValueKind,
        name: &ValueName,
    ) -> Result<Option<SavedValue>, StoreError> {
        let (info, value) = match (self.value_info(kind, name).await, self.current_value(kind, name).await) {
            (Ok(Some(info)), Ok(Some(value))) => (info, value),
            (Err(error), _) | (_, Err(error)) if !error.is_broken_key() => return Err(error),
            _ => return Ok(None),
        };
        Ok(Some(SavedValue {
            kind,
            name: name.clone(),
            version: value.version(),
            data: STANDARD.encode(value.bytes()),
            created_at: info.created_at,
            updated_at: info.updated_at,
            app: info.app,
        }))
    }

    /// Returns it encrypted; `None` if it is gone or broken.
    pub async fn backup_login(&self, host: &RegistryHost) -> Result<Option<SavedLogin>, StoreError> {
        let (info, login) = match (self.registry_info(host).await, self.login(host).await) {
            (Ok(Some(info)), Ok(Some(login))) => (info, login),
            (Err(error), _) | (_, Err(error)) if !error.is_broken_key() => return Err(error),
            _ => return Ok(None),
        };
        Ok(Some(SavedLogin {
            host: host.clone(),
            user: login.user().to_owned(),
            password: String::from_utf8_lossy(login.password()).into_owned(),
            updated_at: info.updated_at,
        }))
    }

    /// Returns false if the name exists.
    pub async fn restore_value(&self, saved: &SavedValue) -> Result<bool, StoreError> {
        let SavedValue { kind, name, version, data, created_at, updated_at, app } = saved;
        let what = format!("the {kind} {name} of the backup");
        let bytes = STANDARD.decode(data).map_err(|_| corrupt(&what, "its data is not base64"))?;
        let restore = value_restore::Head {
            value_key: keys::value(*kind, name),
            names: keys::value_names(*kind),
            kind: crate::value::values::title(*kind),
            name,
            version: *version,
            value: &bytes[..],
            created_at: *created_at,
            updated_at: *updated_at,
            app: app.as_ref(),
        };
        Ok(word(&what, self.link.script(&restore.call()).await?)? == "OK")
    }

    pub async fn restore_login(&self, saved: &SavedLogin) -> Result<bool, StoreError> {
        let restore = registry_restore::Head {
            registry_key: keys::registry(&saved.host),
            registries: keys::REGISTRIES,
            host: &saved.host,
            user: &saved.user[..],
            password: &saved.password[..],
            updated_at: saved.updated_at,
        };
        Ok(word("restoring the login for a registry", self.link.script(&restore.call()).await?)? == "OK")
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
        resource_ids: record.resource_ids,
        created_at: record.created_at,
        since: record.since,
        runs: record.runs,
    }
}
