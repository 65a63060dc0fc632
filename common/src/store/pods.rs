//! Pods: their records, the slots of their services, and making, stopping and healing them.

use std::collections::HashMap;

use futures_util::{StreamExt, TryStreamExt};
use redis::{Value, cmd};

use super::reply::{Fields, list, read, unexpected, verdict, word};
use super::scripts::{self, Call, call};
use super::{Store, StoreError, keys};
use crate::ids::{NodeName, PodId, PodName, SchedulerId, ServiceName};
use crate::lifecycle::Phase;
use crate::payload::Payload;
use crate::pod::{PodRecord, Refusal};
use crate::service::Service;

/// How many pods one script makes or stops: a few milliseconds of Redis.
const BATCH: usize = 250;

/// How many of these scripts are under way at a time when pods are made. Between two of them others get their turn; but a
/// large service is in the queue soon, and then schedulers give a node all its share at once instead of one by one.
const CREATES_AT_A_TIME: usize = 8;

/// What became of [`Store::create_pods`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateOutcome {
    /// So many were made; the others' slots were taken already.
    Created(usize),
    /// The service is another one by now: reread it.
    Changed,
}

/// What became of one pod in [`Store::stop_pods`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopOutcome {
    /// It ran nowhere: gone at once.
    Stopped,
    /// Its node will stop it.
    Stopping,
    /// It is on another node by now: reread.
    Moved,
    /// It was gone already.
    Gone,
}

/// What became of [`Store::requeue_missing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequeueOutcome {
    /// Its payload was nowhere; now it is queued.
    Queued,
    /// Nothing was missing.
    Present,
    /// It moved on meanwhile.
    Changed,
}

impl Store {
    /// Who holds each slot of a service, by replica index. Read in pages: not a snapshot.
    pub async fn slots(&self, service: &ServiceName) -> Result<Vec<(u32, PodId)>, StoreError> {
        let mut slots = HashMap::new();
        let mut cursor = 0u64;
        loop {
            let mut scan = cmd("HSCAN");
            scan.arg(keys::slots(service)).arg(cursor).arg("COUNT").arg(1000);
            let (next, page): (u64, Vec<(u32, String)>) = self.link.query(&scan).await?;
            slots.extend(page.into_iter().filter_map(|(replica, id)| Some((replica, PodId::new(id).ok()?))));
            if next == 0 {
                break;
            }
            cursor = next;
        }
        let mut slots: Vec<_> = slots.into_iter().collect();
        slots.sort_unstable_by_key(|(replica, _)| *replica);
        Ok(slots)
    }

    /// The pods somebody pushed, which are wanted until somebody stops them.
    pub async fn pushed_pods(&self) -> Result<Vec<PodId>, StoreError> {
        let ids: Vec<String> = self.link.query(cmd("SMEMBERS").arg(keys::PUSHED)).await?;
        Ok(ids.into_iter().filter_map(|id| PodId::new(id).ok()).collect())
    }

    /// One pod's record.
    pub async fn pod(&self, id: &PodId) -> Result<Option<PodRecord>, StoreError> {
        Ok(self.pods(std::slice::from_ref(id)).await?.pop().flatten())
    }

    /// These pods' records, in this order; none for one that does not exist.
    pub async fn pods(&self, ids: &[PodId]) -> Result<Vec<Option<PodRecord>>, StoreError> {
        let mut records = Vec::with_capacity(ids.len());
        for chunk in ids.chunks(1000) {
            let mut pipe = redis::pipe();
            for id in chunk {
                pipe.cmd("HGETALL").arg(keys::pod(id));
            }
            let replies = list("reading pods", self.link.pipeline(&pipe).await?)?;
            for (id, reply) in chunk.iter().zip(replies) {
                records.push(read_pod(id, reply)?);
            }
        }
        Ok(records)
    }

    /// As [`Store::pods`], but a record that can not be read is an error of its own and hides no other.
    pub async fn pods_each(
        &self,
        ids: &[PodId],
    ) -> Result<Vec<Result<Option<PodRecord>, StoreError>>, StoreError> {
        let mut records = Vec::with_capacity(ids.len());
        for chunk in ids.chunks(1000) {
            match self.pods(chunk).await {
                Ok(found) => records.extend(found.into_iter().map(Ok)),
                Err(error) if error.is_transient() => return Err(error),
                Err(_) => {
                    for id in chunk {
                        records.push(match self.pod(id).await {
                            Err(error) if error.is_transient() => return Err(error),
                            record => record,
                        });
                    }
                }
            }
        }
        Ok(records)
    }

    /// Makes the pods of these replica indices, each at most once however often this is called.
    pub async fn create_pods(
        &self,
        service: &Service,
        replicas: &[u32],
    ) -> Result<CreateOutcome, StoreError> {
        let parts: Vec<_> = replicas.chunks(BATCH).map(|part| self.create_part(service, part)).collect();
        let mut parts = futures_util::stream::iter(parts).buffered(CREATES_AT_A_TIME);
        let mut made = 0;
        while let Some(part) = parts.try_next().await? {
            match part {
                CreateOutcome::Created(count) => made += count,
                CreateOutcome::Changed => return Ok(CreateOutcome::Changed),
            }
        }
        Ok(CreateOutcome::Created(made))
    }

    async fn create_part(&self, service: &Service, replicas: &[u32]) -> Result<CreateOutcome, StoreError> {
        read_created(self.link.script(&create_call(service, replicas)).await?)
    }

    /// Says that pods are not wanted any more. Each comes with the node it was seen on. All of one service, or all pushed.
    pub async fn stop_pods(
        &self,
        service: Option<&ServiceName>,
        pods: &[(PodId, Option<NodeName>)],
        reason: &str,
        message: &str,
    ) -> Result<Vec<StopOutcome>, StoreError> {
        let what = "stopping pods";
        let mut outcomes = Vec::with_capacity(pods.len());
        for chunk in pods.chunks(BATCH) {
            let mut stop = call(&scripts::pods_stop);
            stop.key(keys::UQ).key(keys::UQ_AT).key(keys::UQ_WHY).key(keys::wanted(service));
            stop.arg(reason).arg(message);
            for (id, node) in chunk {
                let node_text = node.as_ref().map(NodeName::as_str).unwrap_or_default();
                let stop_key = node.as_ref().map_or_else(|| "stop:".to_owned(), keys::stop);
                stop.key(keys::pod(id)).key(stop_key).arg(id.as_str()).arg(node_text);
            }
            for value in list(what, self.link.script(&stop).await?)? {
                outcomes.push(match word(what, value)?.as_str() {
                    "stopped" => StopOutcome::Stopped,
                    "stopping" => StopOutcome::Stopping,
                    "moved" => StopOutcome::Moved,
                    "gone" => StopOutcome::Gone,
                    other => return Err(unexpected(what, other)),
                });
            }
        }
        Ok(outcomes)
    }

    /// Frees slots whose pod has no record any more; gives how many. Slots that changed hands meanwhile stay.
    pub async fn free_slots(
        &self,
        service: &ServiceName,
        slots: &[(u32, PodId)],
    ) -> Result<usize, StoreError> {
        let mut freed = 0;
        for chunk in slots.chunks(BATCH) {
            let mut free = call(&scripts::slot_free);
            free.key(keys::slots(service)).arg(service.as_str());
            for (replica, id) in chunk {
                free.key(keys::pod(id)).arg(*replica).arg(id.as_str());
            }
            freed += read::<usize>("freeing slots", self.link.script(&free).await?)?;
        }
        Ok(freed)
    }

    /// Puts a pod's payload back where its phase says it must be, if it really is nowhere.
    pub async fn requeue_missing(
        &self,
        pod: &PodRecord,
        schedulers: &[SchedulerId],
    ) -> Result<RequeueOutcome, StoreError> {
        let what = "requeueing a pod";
        let Some(payload) = self.payload_of(pod).await? else { return Ok(RequeueOutcome::Changed) };
        let nobody = NodeName::new("none").expect("a valid name");
        let node = pod.node.as_ref().unwrap_or(&nobody);
        let mut requeue = call(&scripts::pod_requeue);
        requeue.key(keys::pod(&pod.id)).key(keys::wanted(pod.service.as_ref())).key(keys::SQ).key(keys::UQ);
        requeue.key(keys::node(node)).key(keys::pq(node)).key(keys::rq(node)).key(keys::cs(node));
        requeue.key(keys::stop(node)).key(keys::SCHEDULERS);
        for scheduler in schedulers {
            requeue.key(keys::in_flight(scheduler));
        }
        let seen_node = pod.node.as_ref().map(NodeName::as_str).unwrap_or_default();
        requeue.arg(pod.id.as_str()).arg(&payload.raw[..]).arg(pod.phase.as_str()).arg(seen_node);
        for scheduler in schedulers {
            requeue.arg(scheduler.as_str());
        }
        match word(what, self.link.script(&requeue).await?)?.as_str() {
            "QUEUED" => Ok(RequeueOutcome::Queued),
            "PRESENT" => Ok(RequeueOutcome::Present),
            "CHANGED" => Ok(RequeueOutcome::Changed),
            other => Err(unexpected(what, other)),
        }
    }

    /// The payload of a pod: rebuilt for a service's pod, read from the record for a pushed one.
    pub async fn payload_of(&self, pod: &PodRecord) -> Result<Option<Payload>, StoreError> {
        match (&pod.service, &pod.spec) {
            (Some(_), Some(spec)) => {
                let name = pod.name.clone();
                Ok(Some(Payload::of_service(name, pod.id.clone(), &pod.image, pod.replica, spec.clone())))
            }
            _ => {
                let raw: Option<Vec<u8>> =
                    self.link.query(cmd("HGET").arg(keys::pod(&pod.id)).arg("payload")).await?;
                Ok(raw.and_then(|raw| Payload::parse(raw.into()).ok()))
            }
        }
    }

    /// Why a pod fits no node, if it is recorded as unschedulable.
    pub async fn refusals(&self, id: &PodId) -> Result<Option<Vec<Refusal>>, StoreError> {
        let text: Option<String> = self.link.query(cmd("HGET").arg(keys::UQ_WHY).arg(id.as_str())).await?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }
}

/// The payload of one pod of a service.
pub(crate) fn service_payload(service: &Service, id: PodId, replica: u32) -> Payload {
    let name = PodName::from(service.name.clone());
    Payload::of_service(name, id, service.pod.image(), replica, service.spec_id.clone())
}

/// The call that makes the pods of these replica indices, at most [`BATCH`] of them.
pub(super) fn create_call(service: &Service, replicas: &[u32]) -> Call<'static> {
    let mut create = call(&scripts::pods_create);
    create.key(keys::service(&service.name)).key(keys::slots(&service.name)).key(keys::SQ);
    create.arg(service.name.as_str()).arg(service.spec_id.as_str()).arg(service.generation);
    create.arg(service.pod.image()).arg(service.pod.cpu_millis()).arg(service.pod.memory_bytes());
    for replica in replicas {
        let payload = service_payload(service, PodId::random(), *replica);
        create.key(keys::pod(&payload.id)).arg(*replica).arg(payload.id.as_str()).arg(&payload.raw[..]);
    }
    create
}

/// What became of a [`create_call`].
pub(super) fn read_created(reply: Value) -> Result<CreateOutcome, StoreError> {
    let what = "making pods";
    let (answer, rest) = verdict(what, reply)?;
    match (answer.as_str(), rest.into_iter().next()) {
        ("OK", Some(count)) => Ok(CreateOutcome::Created(read(what, count)?)),
        ("CHANGED", _) => Ok(CreateOutcome::Changed),
        (other, _) => Err(unexpected(what, other)),
    }
}

fn read_pod(id: &PodId, value: Value) -> Result<Option<PodRecord>, StoreError> {
    let what = format!("reading pod {id}");
    let Some(fields) = Fields::read(&what, value)? else { return Ok(None) };
    let phase = fields.text("phase");
    let phase =
        Phase::parse(&phase).ok_or_else(|| super::reply::corrupt(&what, format!("phase is {phase:?}")))?;
    let exit_code = fields.text("exit_code");
    Ok(Some(PodRecord {
        id: id.clone(),
        name: fields.parse("name")?,
        phase,
        replica: fields.number("replica")?,
        image: fields.text("image"),
        service: fields.parse_opt("service")?,
        spec: fields.parse_opt("spec")?,
        generation: fields.number("generation")?,
        node: fields.parse_opt("node")?,
        assignment: fields.parse_opt("assignment")?,
        attempts: fields.number("attempts")?,
        restarts: fields.number("restarts")?,
        cpu_millis: fields.number("cpu")?,
        memory_bytes: fields.number("memory")?,
        created_at: fields.number("created_at")?,
        since: fields.number("since")?,
        reason: fields.text("reason"),
        message: fields.text("message"),
        exit_code: exit_code.parse().ok(),
        address: fields.text("address"),
    }))
}
