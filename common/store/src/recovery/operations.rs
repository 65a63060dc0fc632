//! `kubeleet cluster recover`: asks the workers for their saved state, and restores what is missing.
//!
//! The request and the answers, a list for each worker, are in Redis and expire. Workers on hold poll for a
//! request; those with a session get a message.

use std::collections::BTreeSet;

use redis::cmd;

use super::plan::{KnownRecord, KnownService, KnownState, PodRecovery, ServiceRecovery};
use crate::keys::channel;
use crate::loaded::all_fields;
use crate::node::hints::WorkerHint;
use crate::pod::pods::runs_text;
use crate::recovery::saved_state::{InvalidState, SavedFile, SavedService, SavedState};
use crate::reply::{HashFields, list, read, unexpected, verdict, word};
use crate::scripts::{cluster_recover, pods_recover, service_recover};
use crate::{Store, StoreError, keys};
use model::RedisMillis;
use model::ids::{ClusterId, NodeName, PodId, RecoveryId, ServiceName, WriteId};
use model::network::published_field;
use model::pod::lifecycle::Phase;
use model::pod::slot::Slot;

const EXPIRE_SECONDS: u64 = 120;
const BATCH: usize = 250;
/// Approximate bytes of the pieces of an answer.
const PIECE: usize = 256 * 1024;
const PIECES_PER_READ: isize = 16;
/// Redis has to store it. A worker with more does not answer.
const MAX_ANSWER_BYTES: usize = 256 * 1024 * 1024;

#[derive(Debug, Clone, PartialEq)]
pub struct RecoveryAnswer {
    pub node: NodeName,
    pub saved: Result<SavedFile, InvalidState>,
}

impl Store {
    /// Sends `nodes` a message; workers on hold poll.
    pub async fn request_recovery(&self, id: &RecoveryId, nodes: &[NodeName]) -> Result<(), StoreError> {
        let mut pipe = redis::pipe();
        pipe.cmd("SET").arg(keys::RECOVERY).arg(id.as_str()).arg("EX").arg(EXPIRE_SECONDS).ignore();
        for node in nodes {
            pipe.cmd("PUBLISH").arg(channel::worker(node)).arg(WorkerHint::Recovery.text()).ignore();
        }
        self.link.pipeline(&pipe).await
    }

    pub async fn recovery_request(&self) -> Result<Option<RecoveryId>, StoreError> {
        let id: Option<String> = self.link.query(cmd("GET").arg(keys::RECOVERY)).await?;
        Ok(id.and_then(|id| RecoveryId::new(id).ok()))
    }

    /// Idempotent.
    ///
    /// # Errors
    /// The answer is then incomplete and is ignored.
    pub async fn answer_recovery(
        &self,
        id: &RecoveryId,
        node: &NodeName,
        lines: &[String],
    ) -> Result<(), StoreError> {
        let key = keys::recovery(node);
        let size: usize = lines.iter().map(|line| line.len() + 1).sum();
        if size > MAX_ANSWER_BYTES {
            let why = format!("it has {size} bytes, and at most {MAX_ANSWER_BYTES} are sent");
            return Err(crate::reply::corrupt("answering a request for saved pods", why));
        }
        let mut begin = redis::pipe();
        begin.cmd("DEL").arg(&key).ignore();
        begin.cmd("RPUSH").arg(&key).arg(id.as_str()).ignore();
        begin.cmd("EXPIRE").arg(&key).arg(EXPIRE_SECONDS).ignore();
        let () = self.link.pipeline(&begin).await?;
        for piece in pieces(lines) {
            // An expired key must not be recreated without its beginning and without expiry.
            let () = self.link.query(cmd("RPUSHX").arg(&key).arg(piece)).await?;
        }
        Ok(())
    }

    /// Returns `None` also for an incomplete answer.
    pub async fn recovery_answer(
        &self,
        id: &RecoveryId,
        node: &NodeName,
    ) -> Result<Option<RecoveryAnswer>, StoreError> {
        let key = keys::recovery(node);
        let first: Option<Vec<u8>> = self.link.query(cmd("LINDEX").arg(&key).arg(0)).await?;
        if first.as_deref() != Some(id.as_str().as_bytes()) {
            return Ok(None);
        }
        let (mut text, mut next) = (Vec::new(), 1isize);
        loop {
            let mut range = cmd("LRANGE");
            range.arg(&key).arg(next).arg(next + PIECES_PER_READ - 1);
            let found: Vec<Vec<u8>> = self.link.query(&range).await?;
            if found.is_empty() {
                break;
            }
            next += found.len() as isize;
            found.iter().for_each(|piece| text.extend_from_slice(piece));
        }
        let text = String::from_utf8_lossy(&text);
        Ok(match SavedFile::read(text.lines()) {
            Err(InvalidState::Incomplete { .. }) => None,
            saved => Some(RecoveryAnswer { node: node.clone(), saved }),
        })
    }

    pub async fn end_recovery(&self, nodes: &[NodeName]) -> Result<(), StoreError> {
        let mut delete = cmd("DEL");
        delete.arg(keys::RECOVERY);
        for node in nodes {
            delete.arg(keys::recovery(node));
        }
        self.link.query(&delete).await
    }
}

fn pieces(lines: &[String]) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for line in lines {
        if pieces.last().is_some_and(|last| !last.is_empty() && last.len() + line.len() > PIECE) {
            pieces.push(String::new());
        }
        if let Some(last) = pieces.last_mut() {
            last.push_str(line);
            last.push('\n');
        }
    }
    pieces
}

impl Store {
    /// Leaves `nodes` `None`.
    pub async fn known_state(&self, saved: &SavedState) -> Result<KnownState, StoreError> {
        let mut known = KnownState::default();
        let of_pods = saved.pods.iter().filter_map(|pod| pod.service.as_ref());
        let of_volumes = saved.volumes.iter().map(|volume| &volume.service);
        let mut names: Vec<&ServiceName> = saved.services.keys().chain(of_pods).chain(of_volumes).collect();
        names.sort_unstable();
        names.dedup();
        let deletions = self.deletions(&names).await?;
        for (name, deleted_at) in names.into_iter().zip(deletions) {
            let fields = self.saved_service(name).await?;
            let record = fields.map(|service| KnownRecord {
                revision: service.revision(),
                generation: service.generation(),
                replicas: if service.is_active() { service.replicas() } else { 0 },
            });
            let slots = self.slots(name).await?.into_iter().collect();
            known.services.insert(name.clone(), KnownService { record, slots, deleted_at });
        }
        let payloads = saved.pods.iter().filter_map(|pod| Some((pod.service.as_ref(), pod.parsed().ok()?)));
        let mut ids = BTreeSet::new();
        for (service, payload) in payloads {
            let service = service.and_then(|name| known.services.get(name));
            let first = Slot::first(payload.replica);
            ids.extend(service.and_then(|service| service.slots.get(&first)).cloned());
            ids.insert(payload.id);
        }
        let ids: Vec<PodId> = ids.into_iter().collect();
        let exists = |id: &PodId| cmd("EXISTS").arg(keys::pod(id)).to_owned();
        let existing = |id: &PodId, reply| Ok(read::<bool>("looking for a pod", reply)?.then(|| id.clone()));
        known.records.extend(self.load(&ids, exists, existing).await?.found());
        Ok(known)
    }

    /// `None` if unknown or forgotten.
    async fn deletions(&self, names: &[&ServiceName]) -> Result<Vec<Option<RedisMillis>>, StoreError> {
        let score =
            |name: &&ServiceName| cmd("ZSCORE").arg(keys::DELETED_SERVICES).arg(name.as_str()).to_owned();
        let read = |_: &&ServiceName, reply| read::<Option<f64>>("reading a deletion", reply);
        let deletions = self.load(names, score, read).await?.options();
        Ok(deletions.map(|at| at.map(|at| at as RedisMillis)).collect())
    }

    pub async fn saved_service(&self, name: &ServiceName) -> Result<Option<SavedService>, StoreError> {
        Ok(self.saved_services(std::slice::from_ref(name)).await?.pop())
    }

    /// Leaves out missing ones and wrong types.
    ///
    /// # Errors
    /// Broken keys cause none.
    pub async fn saved_services(&self, names: &[ServiceName]) -> Result<Vec<SavedService>, StoreError> {
        let read = |name: &ServiceName, reply| {
            let fields = HashFields::read("reading a service", reply)?.map(|fields| fields.texts());
            Ok(fields.map(|fields| SavedService::new(name.clone(), fields)))
        };
        Ok(self.load(names, |name| all_fields(keys::service(name)), read).await?.found())
    }
}

impl Store {
    /// Writes specifications, then pods, then the record, so that no pod is created for a slot to be
    /// restored. The next run completes an interrupted one. Pass `with_record` if no other pods of the
    /// service follow.
    pub async fn recover_service(
        &self,
        service: &ServiceRecovery,
        with_record: bool,
    ) -> Result<usize, StoreError> {
        for spec in &service.specs {
            // SET also removes the expiry.
            let () = self.link.query(cmd("SET").arg(keys::spec(&spec.id)).arg(&spec.text)).await?;
        }
        let recovered = self.recover_pods(Some(&service.name), &service.pods).await?;
        let current = match &service.record {
            Some(record) if with_record => {
                self.recover_record(record).await?;
                Some(record.clone())
            }
            Some(record) => Some(record.clone()),
            None => self.saved_service(&service.name).await?,
        };
        let current = current.and_then(|service| Some(service.spec()?.id));
        for spec in service.specs.iter().filter(|spec| Some(&spec.id) != current.as_ref()) {
            let () = self.link.query(cmd("SADD").arg(keys::FORMER_SPECS).arg(spec.id.as_str())).await?;
        }
        Ok(recovered)
    }

    /// Returns false if Redis has the same or a newer revision.
    pub async fn recover_record(&self, service: &SavedService) -> Result<bool, StoreError> {
        let what = "recovering a service";
        let write = WriteId::random();
        let mut call = service_recover::Head {
            service_key: keys::service(&service.name),
            services: keys::SERVICES,
            unconfirmed: keys::UNCONFIRMED,
            former_specs: keys::FORMER_SPECS,
            routes: keys::ROUTES,
            relations: keys::RELATIONS,
            done: keys::done(&service.name),
            tries: keys::tries(&service.name),
            deleted: keys::DELETED_SERVICES,
            field_count: service.fields.len(),
            completion_count: service.done.len(),
            service: &service.name,
            saved_revision: service.revision(),
            write: &write,
        }
        .call();
        for (field, value) in &service.fields {
            call.add(service_recover::Field { field, value });
        }
        for (index, result) in &service.done {
            call.add(service_recover::Completion { index, result });
        }
        for (index, result) in &service.tries {
            call.add(service_recover::Failure { index, result });
        }
        let (reply, _) = self.write_service(&service.name, write, &call).await?;
        match verdict(what, reply)?.0.as_str() {
            "RECOVERED" => Ok(true),
            "PRESENT" => Ok(false),
            other => Err(unexpected(what, other)),
        }
    }

    /// Skips those with a record or a taken slot.
    pub async fn recover_pods(
        &self,
        service: Option<&ServiceName>,
        pods: &[PodRecovery],
    ) -> Result<usize, StoreError> {
        let what = "recovering pods";
        let mut recovered = 0;
        for chunk in pods.chunks(BATCH) {
            let mut call = pods_recover::Head {
                wanted_key: keys::wanted(service),
                sq: keys::SQ,
                ep_key: keys::endpoints_of(service),
                service,
            }
            .call();
            chunk.iter().for_each(|pod| add_pod(&mut call, pod));
            for reply in list(what, self.link.script(&call).await?)? {
                match word(what, reply)?.as_str() {
                    "recovered" => recovered += 1,
                    "present" | "taken" => {}
                    other => return Err(unexpected(what, other)),
                }
            }
            let stopping = chunk.iter().filter(|pod| pod.phase == Phase::Stopping);
            let node_of = |pod: &PodRecovery| pod.placement.as_ref().map(|(node, _)| node.clone());
            let stops: Vec<_> = stopping.map(|pod| (pod.payload.id.clone(), node_of(pod))).collect();
            if !stops.is_empty() {
                self.stop_pods(service, &stops, "", "was being stopped when it was saved").await?;
            }
        }
        Ok(recovered)
    }

    /// This is the last step. `seen` is the id that the caller has read; it is replaced if that cluster has
    /// no services. Returns false if this Redis has another cluster.
    pub async fn recover_cluster(
        &self,
        cluster: &ClusterId,
        seen: Option<&ClusterId>,
    ) -> Result<bool, StoreError> {
        let call = cluster_recover::Head { services: keys::SERVICES, cluster, seen }.call();
        Ok(read::<String>("recovering the cluster", self.link.script(&call).await?)? == "OK")
    }
}

fn add_pod(call: &mut crate::scripts::Call<'_>, pod: &PodRecovery) {
    let no_node = NodeName::new("none").expect("a valid name");
    let (node, assignment) = pod.placement.as_ref().map(|(node, assignment)| (node, assignment)).unzip();
    let payload = &pod.payload;
    // It is recorded as running, and then stopped as by a user.
    let phase = if pod.phase == Phase::Stopping { Phase::Running } else { pod.phase };
    call.add(pods_recover::Pod {
        pod_key: keys::pod(&payload.id),
        node_key: keys::node(node.unwrap_or(&no_node)),
        cs: keys::cs(node.unwrap_or(&no_node)),
        uuid: &payload.id,
        payload: &payload.raw,
        node,
        assignment,
        phase: phase.as_str(),
        name: &payload.name,
        image: &payload.image,
        replica: payload.replica,
        spec: payload.spec.as_ref(),
        generation: pod.generation,
        restarts: pod.restarts,
        address: &pod.address,
        published: assignment.map(|held| published_field(held, &pod.published_ports)),
        created_at: pod.created_at,
        runs: runs_text(&pod.runs),
        slot: pod.slot.to_string(),
        ids: pod.resource_ids.to_string(),
        resources: &pod.request,
    });
}
