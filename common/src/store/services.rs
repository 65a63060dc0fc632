//! Services: what somebody wants. Written durably, because it is acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redis::cmd;
use serde::{Deserialize, Serialize};

use super::confirm::Written;
use super::pods::{CreateOutcome, create_call, read_created};
use super::reply::{Fields, corrupt, list, read, unexpected, verdict, word};
use super::scripts::{self, Call, call};
use super::{Store, StoreError, keys};
use crate::RedisMillis;
use crate::ids::{ServiceName, SpecId, WriteId};
use crate::service::{MADE_AT_ONCE, Service, ServiceState};
use crate::spec::{DesiredService, PodSpec};

/// Specifications read in one go: a fraction of a millisecond of Redis.
const SPECS_AT_A_TIME: usize = 250;

/// How [`Store::put_service`] treats what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutMode {
    /// It must not exist.
    Create,
    /// It must exist.
    Replace,
    /// Either.
    Upsert,
}

/// What became of [`Store::put_service`].
#[derive(Debug, Clone, PartialEq)]
pub enum PutOutcome {
    /// New, with generation 1: as it was stored.
    Created(Box<Service>),
    /// Its pods' specification changed: this is the new generation.
    Replaced {
        /// The new generation.
        generation: u64,
    },
    /// Only replicas or labels changed.
    Scaled {
        /// The generation, as before.
        generation: u64,
    },
    /// It already was just so.
    Unchanged {
        /// The generation, as before.
        generation: u64,
    },
    /// Refused: it exists.
    Exists,
    /// Refused: it does not exist.
    Missing,
    /// Refused: it is being deleted; its last pods are not gone yet.
    Deleting,
    /// Refused: the generation is another one than the caller expected.
    Conflict {
        /// The generation it has.
        generation: u64,
    },
}

/// What became of [`Store::scale_service`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleOutcome {
    /// Done; so many it had before.
    Scaled {
        /// Replicas before.
        before: u32,
    },
    /// Refused: it does not exist.
    Missing,
    /// Refused: it is being deleted.
    Deleting,
}

/// What stands under `spec:<id>`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SpecFile {
    pub(crate) service: ServiceName,
    pub(crate) pod: PodSpec,
}

impl Store {
    /// Stores what somebody wants of a service; `expected` is the generation the caller knows, where it cares.
    pub async fn put_service(
        &self,
        desired: &DesiredService,
        mode: PutMode,
        expected: Option<u64>,
    ) -> Result<(PutOutcome, Written), StoreError> {
        let (id, write) = (SpecId::random(), WriteId::random());
        let put = put_call(desired, mode, expected, &id, &write);
        let (reply, written) = self.write_service(&desired.name, write, &put).await?;
        Ok((read_put(desired, id, reply)?, written))
    }

    /// Stores a service that must not exist, and makes its pods in the same breath where they are few: whoever waits for
    /// the first of them waits for one answer of Redis. Gives how many were made; those that were not are made as of any
    /// other service. Should it not be stored, none is: no other service has its specification.
    pub async fn create_service(
        &self,
        desired: &DesiredService,
    ) -> Result<(PutOutcome, usize, Written), StoreError> {
        let (id, write) = (SpecId::random(), WriteId::random());
        let put = put_call(desired, PutMode::Create, None, &id, &write);
        let pods = (desired.replicas <= MADE_AT_ONCE).then(|| {
            let service = just_created(desired, id.clone(), 0);
            create_call(&service, &service.all_replicas())
        });
        let (reply, made, written) =
            self.write_service_and(&desired.name, write, &put, pods.as_ref()).await?;
        let made = match made.map(read_created) {
            Some(Ok(CreateOutcome::Created(count))) => count,
            // They are made once more anyway.
            Some(Ok(CreateOutcome::Changed) | Err(_)) | None => 0,
        };
        Ok((read_put(desired, id, reply)?, made, written))
    }

    /// Changes the number of replicas and nothing else.
    pub async fn scale_service(
        &self,
        name: &ServiceName,
        replicas: u32,
    ) -> Result<(ScaleOutcome, Written), StoreError> {
        let what = "scaling a service";
        let mut scale = call(&scripts::service_scale);
        let write = WriteId::random();
        scale.key(keys::service(name)).key(keys::UNCONFIRMED);
        scale.arg(name.as_str()).arg(replicas).arg(write.as_str());
        let (reply, written) = self.write_service(name, write, &scale).await?;
        let (answer, rest) = verdict(what, reply)?;
        let outcome = match (answer.as_str(), rest.into_iter().next()) {
            ("OK", Some(before)) => ScaleOutcome::Scaled { before: read(what, before)? },
            ("MISSING", _) => ScaleOutcome::Missing,
            ("DELETING", _) => ScaleOutcome::Deleting,
            (other, _) => return Err(unexpected(what, other)),
        };
        Ok((outcome, written))
    }

    /// Says that a service is not wanted any more; false when there is none. Its pods are stopped by reconcile.
    pub async fn delete_service(&self, name: &ServiceName) -> Result<(bool, Written), StoreError> {
        let what = "deleting a service";
        let mut delete = call(&scripts::service_delete);
        let write = WriteId::random();
        delete.key(keys::service(name)).key(keys::UNCONFIRMED).arg(name.as_str()).arg(write.as_str());
        let (reply, written) = self.write_service(name, write, &delete).await?;
        match word(what, reply)?.as_str() {
            "OK" => Ok((true, written)),
            "MISSING" => Ok((false, written)),
            other => Err(unexpected(what, other)),
        }
    }

    /// Forgets a deleted service whose pods are all gone; false when some are left, or it is wanted after all.
    pub async fn forget_service(&self, service: &Service) -> Result<bool, StoreError> {
        let mut forget = call(&scripts::service_forget);
        forget.key(keys::service(&service.name)).key(keys::SERVICES).key(keys::slots(&service.name));
        forget.key(keys::spec(&service.spec_id)).arg(service.name.as_str());
        Ok(word("forgetting a service", self.link.script(&forget).await?)? == "OK")
    }

    /// All services' names, sorted.
    pub async fn service_names(&self) -> Result<Vec<ServiceName>, StoreError> {
        let names: Vec<String> = self.link.query(cmd("SMEMBERS").arg(keys::SERVICES)).await?;
        let mut names: Vec<_> = names.into_iter().filter_map(|name| ServiceName::new(name).ok()).collect();
        names.sort();
        Ok(names)
    }

    /// One service.
    pub async fn service(&self, name: &ServiceName) -> Result<Option<Service>, StoreError> {
        Ok(self.services(std::slice::from_ref(name)).await?.pop())
    }

    /// How many pods of each of these services have been made, and how many are wanted; none when there is no such service.
    pub async fn how_far(&self, names: &[ServiceName]) -> Result<Vec<Option<(u64, u64)>>, StoreError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipe = redis::pipe();
        for name in names {
            pipe.cmd("HLEN").arg(keys::slots(name));
            pipe.cmd("HGET").arg(keys::service(name)).arg("replicas");
        }
        let counts: Vec<Option<u64>> = self.link.pipeline(&pipe).await?;
        Ok(counts.chunks_exact(2).map(|pair| Some((pair[0]?, pair[1]?))).collect())
    }

    /// These services, in this order; those that do not exist are left out.
    pub async fn services(&self, names: &[ServiceName]) -> Result<Vec<Service>, StoreError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipe = redis::pipe();
        for name in names {
            pipe.cmd("HGETALL").arg(keys::service(name));
        }
        let replies = list("reading services", self.link.pipeline(&pipe).await?)?;
        let services = replies.into_iter().map(read_service).collect::<Result<Vec<_>, _>>()?;
        Ok(services.into_iter().flatten().collect())
    }

    /// A pod specification by its id. Specifications never change, so they are cached for ever, within bounds.
    pub async fn pod_spec(&self, id: &SpecId) -> Result<Option<Arc<PodSpec>>, StoreError> {
        if let Some(spec) = self.specs.get(id) {
            return Ok(Some(spec));
        }
        let text: Option<Vec<u8>> = self.link.query(cmd("GET").arg(keys::spec(id))).await?;
        text.map(|text| self.remember_spec(id, &text)).transpose()
    }

    /// Reads those of these specifications in one go that are not known yet, so that [`Store::pod_spec`] need not ask for
    /// each of them. One that is not there, or broken, is its matter.
    pub async fn read_pod_specs(&self, ids: impl IntoIterator<Item = &SpecId>) -> Result<(), StoreError> {
        let unknown: BTreeSet<&SpecId> = ids.into_iter().filter(|id| self.specs.get(id).is_none()).collect();
        if unknown.len() < 2 {
            return Ok(());
        }
        let unknown: Vec<&SpecId> = unknown.into_iter().collect();
        for part in unknown.chunks(SPECS_AT_A_TIME) {
            let mut get = cmd("MGET");
            for id in part {
                get.arg(keys::spec(id));
            }
            let texts: Vec<Option<Vec<u8>>> = self.link.query(&get).await?;
            for (id, text) in part.iter().zip(texts) {
                let _broken = text.map(|text| self.remember_spec(id, &text).is_err());
            }
        }
        Ok(())
    }

    fn remember_spec(&self, id: &SpecId, text: &[u8]) -> Result<Arc<PodSpec>, StoreError> {
        let file: SpecFile = serde_json::from_slice(text).map_err(|e| corrupt("reading a spec", e))?;
        Ok(self.specs.insert(id.clone(), file.pod))
    }
}

fn put_call(
    desired: &DesiredService,
    mode: PutMode,
    expected: Option<u64>,
    id: &SpecId,
    write: &WriteId,
) -> Call<'static> {
    let file = SpecFile { service: desired.name.clone(), pod: desired.pod.clone() };
    let mode = match mode {
        PutMode::Create => "create",
        PutMode::Replace => "replace",
        PutMode::Upsert => "upsert",
    };
    let mut put = call(&scripts::service_put);
    put.key(keys::service(&desired.name)).key(keys::SERVICES).key(keys::spec(id)).key(keys::UNCONFIRMED);
    put.arg(desired.name.as_str()).arg(mode).arg(id.as_str()).arg(to_json(&file)).arg(desired.replicas);
    put.arg(to_json(&desired.labels)).arg(expected.map(|g| g.to_string()).unwrap_or_default());
    put.arg(write.as_str());
    put
}

fn read_put(desired: &DesiredService, id: SpecId, reply: redis::Value) -> Result<PutOutcome, StoreError> {
    let what = "storing a service";
    let (answer, rest) = verdict(what, reply)?;
    // The time of the one that was created, the generation of another.
    let generation = match rest.into_iter().next() {
        Some(value) => read(what, value)?,
        None => 0,
    };
    Ok(match answer.as_str() {
        "CREATED" => PutOutcome::Created(Box::new(just_created(desired, id, generation))),
        "REPLACED" => PutOutcome::Replaced { generation },
        "SCALED" => PutOutcome::Scaled { generation },
        "UNCHANGED" => PutOutcome::Unchanged { generation },
        "EXISTS" => PutOutcome::Exists,
        "MISSING" => PutOutcome::Missing,
        "DELETING" => PutOutcome::Deleting,
        "CONFLICT" => PutOutcome::Conflict { generation },
        other => return Err(unexpected(what, other)),
    })
}

/// A service as the script that made it has stored it, at this time.
fn just_created(desired: &DesiredService, spec_id: SpecId, now: RedisMillis) -> Service {
    Service {
        name: desired.name.clone(),
        state: ServiceState::Active,
        generation: 1,
        spec_id,
        replicas: desired.replicas,
        labels: desired.labels.clone(),
        created_at: now,
        updated_at: now,
        pod: desired.pod.clone(),
    }
}

fn read_service(value: redis::Value) -> Result<Option<Service>, StoreError> {
    let Some(fields) = Fields::read("reading a service", value)? else { return Ok(None) };
    let file: SpecFile = serde_json::from_str(&fields.text("spec_text"))
        .map_err(|e| corrupt("reading a service", format!("spec_text: {e}")))?;
    let labels: BTreeMap<String, String> = fields.json("labels")?;
    Ok(Some(Service {
        name: fields.parse("name")?,
        state: if fields.text("state") == "deleting" { ServiceState::Deleting } else { ServiceState::Active },
        generation: fields.number("generation")?,
        spec_id: fields.parse("spec")?,
        replicas: fields.number("replicas")?,
        labels,
        created_at: fields.number("created_at")?,
        updated_at: fields.number("updated_at")?,
        pod: file.pod,
    }))
}

/// Our own types always serialize: texts, numbers and maps with text keys.
pub(crate) fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("domain types serialize")
}
