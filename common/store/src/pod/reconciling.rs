//! Operations of the reconcile loop on pods: creating, stopping, and repairs after a failover.

use futures_util::{StreamExt, TryStreamExt};
use redis::Value;

use crate::reply::{list, read, unexpected, verdict, word};
use crate::scripts::{Call, pod_requeue, pods_create, pods_keep, pods_replace, pods_stop, slot_free};
use crate::{Store, StoreError, keys};
use model::ids::{NodeName, PodId, PodName, SchedulerId, ServiceName, WriteId};
use model::pod::PodRecord;
use model::pod::payload::Payload;
use model::pod::slot::Slot;
use model::service::Service;

/// A few milliseconds of Redis.
const BATCH: usize = 250;

/// Redis serves other clients in between; schedulers soon see the whole service, so that each node gets its
/// share at once.
const CONCURRENT_CREATES: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateOutcome {
    Created(usize),
    /// Read the service again.
    Changed,
    /// The replicas have not confirmed the cron's job: retry.
    Unconfirmed,
}

#[derive(Clone, Copy)]
struct Stop<'a> {
    reason: &'a str,
    message: &'a str,
    spares_ready: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopOutcome {
    Stopped,
    Stopping,
    /// It is on another node, or ready and spared: read it again.
    Moved,
    Gone,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacedPod {
    pub id: PodId,
    /// Where it was last seen.
    pub node: NodeName,
    /// It has the other place of the slot and is ready; `None` if it is created later.
    pub successor: Option<PodId>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum ReplicaPlace<'a> {
    First,
    /// Takes the step after `step`.
    FirstOfJob {
        step: &'a str,
    },
    /// Takes the step after `step`.
    Second {
        step: &'a str,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequeueOutcome {
    Queued,
    Present,
    Changed,
}

impl Store {
    /// Idempotent.
    pub async fn create_pods(
        &self,
        service: &Service,
        replicas: &[u32],
    ) -> Result<CreateOutcome, StoreError> {
        let parts = replicas.chunks(BATCH).map(|part| self.create_part(service, part, ReplicaPlace::First));
        let parts: Vec<_> = parts.collect();
        let mut parts = futures_util::stream::iter(parts).buffered(CONCURRENT_CREATES);
        let mut created = 0;
        while let Some(part) = parts.try_next().await? {
            match part {
                CreateOutcome::Created(count) => created += count,
                CreateOutcome::Changed | CreateOutcome::Unconfirmed => return Ok(part),
            }
        }
        Ok(CreateOutcome::Created(created))
    }

    async fn create_part(
        &self,
        service: &Service,
        replicas: &[u32],
        place: ReplicaPlace<'_>,
    ) -> Result<CreateOutcome, StoreError> {
        read_created(self.link.script(&create_call(service, replicas, place, None)).await?)
    }

    /// Creates as many as one script handles, in the step after that of `service`.
    pub async fn create_successors(
        &self,
        service: &Service,
        replicas: &[u32],
    ) -> Result<CreateOutcome, StoreError> {
        let part = &replicas[..replicas.len().min(BATCH)];
        self.create_part(service, part, ReplicaPlace::Second { step: &service.rollout.step }).await
    }

    /// Creates as many as one script handles, in the step after that of `job`: of two schedulers only one
    /// does.
    pub async fn create_job_pods(&self, job: &Service, indices: &[u32]) -> Result<CreateOutcome, StoreError> {
        let part = &indices[..indices.len().min(BATCH)];
        self.create_part(job, part, ReplicaPlace::FirstOfJob { step: &job.rollout.step }).await
    }

    /// Stops as many as one script handles, in the step after that of `service`. Returns true if something is
    /// left to do.
    pub async fn replace_pods(
        &self,
        service: &Service,
        pods: &[ReplacedPod],
        message: &str,
    ) -> Result<bool, StoreError> {
        let what = "replacing pods";
        let mut call = pods_replace::Head {
            service_key: keys::service(&service.name),
            slots: keys::slots(&service.name),
            ep_key: keys::endpoints(&service.name),
            spec: &service.spec_id,
            step: &service.rollout.step,
            message,
        }
        .call();
        for pod in pods.iter().take(BATCH) {
            call.add(pods_replace::Pod {
                pod_key: keys::pod(&pod.id),
                stop_set: keys::stop(&pod.node),
                successor_key: keys::pod(pod.successor.as_ref().unwrap_or(&pod.id)),
                uuid: &pod.id,
                seen_node: &pod.node,
                successor: pod.successor.as_ref(),
            });
        }
        let (answer, outcomes) = verdict(what, self.link.script(&call).await?)?;
        match answer.as_str() {
            "OK" => {
                let outcomes: Vec<String> = read(what, Value::Array(outcomes))?;
                Ok(pods.len() > BATCH || outcomes.iter().any(|outcome| outcome == "moved"))
            }
            "CHANGED" => Ok(true),
            other => Err(unexpected(what, other)),
        }
    }

    /// Updates the generation of pods with the current specification and still the given generation.
    pub async fn keep_pods(&self, service: &ServiceName, pods: &[(PodId, u64)]) -> Result<usize, StoreError> {
        let mut kept = 0;
        for chunk in pods.chunks(BATCH) {
            let mut call = pods_keep::Head { service_key: keys::service(service), service }.call();
            for (id, generation) in chunk {
                call.add(pods_keep::Pod { pod_key: keys::pod(id), seen_generation: *generation });
            }
            kept += read::<usize>("keeping pods", self.link.script(&call).await?)?;
        }
        Ok(kept)
    }

    /// The pods come with their last known nodes; pushed pods have no `service`. Returns one outcome per pod.
    ///
    /// # Errors
    /// If the keys of some pods are broken, stops the others before it fails.
    pub async fn stop_pods(
        &self,
        service: Option<&ServiceName>,
        pods: &[(PodId, Option<NodeName>)],
        reason: &str,
        message: &str,
    ) -> Result<Vec<StopOutcome>, StoreError> {
        self.stop_each(service, pods, Stop { reason, message, spares_ready: false }).await
    }

    /// The outcome of ready pods is `Moved`.
    pub async fn stop_unready_pods(
        &self,
        service: Option<&ServiceName>,
        pods: &[(PodId, Option<NodeName>)],
        reason: &str,
        message: &str,
    ) -> Result<Vec<StopOutcome>, StoreError> {
        self.stop_each(service, pods, Stop { reason, message, spares_ready: true }).await
    }

    async fn stop_each(
        &self,
        service: Option<&ServiceName>,
        pods: &[(PodId, Option<NodeName>)],
        stop: Stop<'_>,
    ) -> Result<Vec<StopOutcome>, StoreError> {
        let mut outcomes = Vec::with_capacity(pods.len());
        let mut first_error = None;
        for chunk in pods.chunks(BATCH) {
            match self.stop_chunk(service, chunk, stop).await {
                Err(error) if error.is_transient() => return Err(error),
                Ok(stopped) => outcomes.extend(stopped),
                // One broken key fails the whole script.
                Err(_) => {
                    for one in chunk {
                        match self.stop_chunk(service, std::slice::from_ref(one), stop).await {
                            Err(error) if error.is_transient() => return Err(error),
                            Ok(stopped) => outcomes.extend(stopped),
                            Err(error) => drop(first_error.get_or_insert(error)),
                        }
                    }
                }
            }
        }
        first_error.map_or(Ok(outcomes), Err)
    }

    async fn stop_chunk(
        &self,
        service: Option<&ServiceName>,
        chunk: &[(PodId, Option<NodeName>)],
        Stop { reason, message, spares_ready }: Stop<'_>,
    ) -> Result<Vec<StopOutcome>, StoreError> {
        let what = "stopping pods";
        let mut call = pods_stop::Head {
            uq: keys::UQ,
            uq_at: keys::UQ_AT,
            uq_why: keys::UQ_WHY,
            uq_class: keys::UQ_CLASS,
            uq_by_class: keys::UQ_BY_CLASS,
            wanted_key: keys::wanted(service),
            ep_key: keys::endpoints_of(service),
            reason,
            message,
            spares_ready,
        }
        .call();
        for (id, node) in chunk {
            call.add(pods_stop::Pod {
                pod_key: keys::pod(id),
                stop_set: node.as_ref().map_or_else(|| "stop:".to_owned(), keys::stop),
                uuid: id,
                seen_node: node.as_ref(),
            });
        }
        let outcome = |value| match word(what, value)?.as_str() {
            "stopped" => Ok(StopOutcome::Stopped),
            "stopping" => Ok(StopOutcome::Stopping),
            "moved" => Ok(StopOutcome::Moved),
            "gone" => Ok(StopOutcome::Gone),
            other => Err(unexpected(what, other)),
        };
        list(what, self.link.script(&call).await?)?.into_iter().map(outcome).collect()
    }

    /// Frees slots whose pod has no record. With `None`, the pod in the second place moves to the first.
    pub async fn free_slots(
        &self,
        service: &ServiceName,
        slots: &[(Slot, Option<PodId>)],
    ) -> Result<usize, StoreError> {
        let mut freed = 0;
        for chunk in slots.chunks(BATCH) {
            let mut call =
                slot_free::Head { slots: keys::slots(service), ep_key: keys::endpoints(service), service }
                    .call();
            for (slot, id) in chunk {
                let pod_key = id.as_ref().map_or_else(|| "pod:".to_owned(), keys::pod);
                call.add(slot_free::Slot { pod_key, replica: slot.replica, uuid: id.as_ref() });
            }
            freed += read::<usize>("freeing slots", self.link.script(&call).await?)?;
        }
        Ok(freed)
    }

    /// Searches the in-flight lists of all `schedulers`.
    pub async fn requeue_missing(
        &self,
        pod: &PodRecord,
        schedulers: &[SchedulerId],
    ) -> Result<RequeueOutcome, StoreError> {
        match self.payload_of(pod).await? {
            Some(payload) => self.requeue_payload(pod, &payload, schedulers).await,
            None => Ok(RequeueOutcome::Changed),
        }
    }

    /// The payload may say more than the record, if another program has overwritten that.
    pub async fn requeue_payload(
        &self,
        pod: &PodRecord,
        payload: &Payload,
        schedulers: &[SchedulerId],
    ) -> Result<RequeueOutcome, StoreError> {
        let what = "requeueing a pod";
        let no_node = NodeName::new("none").expect("a valid name");
        let node = pod.node.as_ref().unwrap_or(&no_node);
        let mut call = pod_requeue::Head {
            pod_key: keys::pod(&pod.id),
            wanted_key: keys::wanted(pod.service.as_ref()),
            sq: keys::SQ,
            uq: keys::UQ,
            node_key: keys::node(node),
            pq: keys::pq(node),
            rq: keys::rq(node),
            cs: keys::cs(node),
            stop_set: keys::stop(node),
            schedulers: keys::SCHEDULERS,
            ep_key: keys::endpoints_of(pod.service.as_ref()),
            uuid: &pod.id,
            payload: &payload.raw,
            seen_phase: pod.phase.as_str(),
            seen_node: pod.node.as_ref(),
        }
        .call();
        for scheduler in schedulers {
            call.add(pod_requeue::Scheduler { in_flight: keys::in_flight(scheduler), scheduler });
        }
        match word(what, self.link.script(&call).await?)?.as_str() {
            "QUEUED" => Ok(RequeueOutcome::Queued),
            "PRESENT" => Ok(RequeueOutcome::Present),
            "CHANGED" => Ok(RequeueOutcome::Changed),
            other => Err(unexpected(what, other)),
        }
    }
}

pub(crate) fn service_payload(service: &Service, id: PodId, replica: u32) -> Payload {
    let name = PodName::from(service.name.clone());
    Payload::for_service(name, id, service.pod.image(), replica, service.spec_id.clone())
}

/// Creates up to [`BATCH`] pods; none if the service's last write is not `last_write`.
pub(crate) fn create_call(
    service: &Service,
    replicas: &[u32],
    place: ReplicaPlace<'_>,
    last_write: Option<&WriteId>,
) -> Call<'static> {
    let resources = service.pod.request();
    let step = match place {
        ReplicaPlace::First => "",
        ReplicaPlace::FirstOfJob { step } | ReplicaPlace::Second { step } => step,
    };
    let mut call = pods_create::Head {
        service_key: keys::service(&service.name),
        slots: keys::slots(&service.name),
        sq: keys::SQ,
        done: keys::done(&service.name),
        unconfirmed: keys::UNCONFIRMED,
        service: &service.name,
        spec: &service.spec_id,
        generation: service.generation,
        image: service.pod.image(),
        last_write,
        is_second: matches!(place, ReplicaPlace::Second { .. }),
        step,
        resources: &resources,
    }
    .call();
    for replica in replicas {
        let payload = service_payload(service, PodId::random(), *replica);
        call.add(pods_create::Pod {
            pod_key: keys::pod(&payload.id),
            replica: *replica,
            payload: &payload.raw,
        });
    }
    call
}

pub(crate) fn read_created(reply: Value) -> Result<CreateOutcome, StoreError> {
    let what = "creating pods";
    let (answer, rest) = verdict(what, reply)?;
    match (answer.as_str(), rest.into_iter().next()) {
        ("OK", Some(count)) => Ok(CreateOutcome::Created(read(what, count)?)),
        ("CHANGED", _) => Ok(CreateOutcome::Changed),
        ("UNCONFIRMED", _) => Ok(CreateOutcome::Unconfirmed),
        (other, _) => Err(unexpected(what, other)),
    }
}
