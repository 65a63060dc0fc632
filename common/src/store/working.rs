//! What a worker says and asks: register, heartbeat, claim, acknowledge, finish. Every call carries the worker's
//! incarnation; one that was declared dead is told so and has changed nothing (invariant 3).

use std::time::Duration;

use bytes::Bytes;
use redis::cmd;

use super::link::Dedicated;
use super::reply::{corrupt, payloads, read, unexpected, verdict, word};
use super::scripts::{self, call};
use super::{Store, StoreError, keys};
use crate::RedisMillis;
use crate::ids::{AssignmentId, Incarnation, NodeName, PodId, ServiceName};
use crate::node::{NodeFacts, Psi, Resources};
use crate::payload::Payload;

/// One life of a worker: the right to write as its node.
#[derive(Clone)]
pub struct Session {
    store: Store,
    node: NodeName,
    incarnation: Incarnation,
}

/// What became of [`Store::register`].
#[allow(clippy::large_enum_variant, reason = "one lives per worker, for a moment")]
pub enum Registration {
    /// A new life has begun; so many payloads went back from rq to pq.
    Registered {
        /// The right to write.
        session: Session,
        /// How many payloads went back.
        requeued: usize,
    },
    /// It was declared dead and its pods are still being moved: try again soon.
    Draining,
}

/// Why a worker may not write any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fenced {
    /// It was declared dead: nothing it runs is its own. Stop, and register again.
    Dead,
    /// Another life has its name: a second worker registered under it, or a failover lost this life's registration.
    /// Register again; when it happens over and over, two workers share the name.
    Replaced,
}

/// An answer, or that this worker may not write any more.
pub type Answer<T> = Result<Result<T, Fenced>, StoreError>;

/// What Redis answers to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatReply {
    /// When this Redis took over from another; 0 when it never did.
    pub master_changed_at: RedisMillis,
    /// Pods of this node that somebody wants stopped.
    pub stop: Vec<PodId>,
    /// Of the containers asked about, those that are not this node's any more.
    pub foreign: Vec<PodId>,
    /// How many nodes there are.
    pub nodes: u64,
}

/// A payload to be claimed.
#[derive(Debug, Clone)]
pub struct ClaimItem {
    /// As it stands in rq.
    pub payload: Payload,
    /// What it asks for; used where the pod is new.
    pub request: Resources,
    /// Its service, where it belongs to one.
    pub service: Option<ServiceName>,
}

/// What a worker shall do with a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// It is this node's: start it as this assignment.
    Start {
        /// The assignment.
        assignment: AssignmentId,
        /// Which attempt this is, from 1.
        attempt: u32,
    },
    /// It runs here already: the copy was dropped.
    Running,
    /// It is somebody else's, or nobody's: the copy was dropped.
    Stale,
    /// It is not wanted any more: dropped, and the pod is finished. Remove its container if there is one.
    Stopped,
    /// It was tried too often: reject it.
    Exhausted {
        /// Which attempt this was.
        attempt: u32,
    },
    /// Its service does not know it: reject it.
    Orphan,
    /// It is not in rq any more.
    Gone,
}

/// What Redis answers to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimReply {
    /// One for each payload.
    Claims(Vec<Claim>),
    /// The master changed a moment ago: start nothing for so long.
    Paused(Duration),
}

/// A pod that runs, to be acknowledged.
#[derive(Debug, Clone)]
pub struct AckItem {
    /// As it stands in rq.
    pub payload: Payload,
    /// As which assignment it was started.
    pub assignment: AssignmentId,
    /// The container's address, or empty.
    pub address: String,
}

/// What Redis answers to an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// It is in cs and its phase is running.
    Running,
    /// It is not wanted any more: stop it, then finish it.
    Stop,
    /// It is not this node's: remove the container, tell nobody.
    Stale,
}

/// How a pod ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// As somebody asked.
    Stopped,
    /// By itself, well.
    Succeeded,
    /// By itself, badly.
    Failed,
}

/// Which pod of this node a report is about.
#[derive(Debug, Clone, Copy)]
pub struct PodRef<'a> {
    /// The pod.
    pub id: &'a PodId,
    /// The assignment the worker knows.
    pub assignment: &'a AssignmentId,
}

/// How a pod ended, in full.
#[derive(Debug, Clone)]
pub struct FinishReport<'a> {
    /// How.
    pub outcome: Outcome,
    /// One word.
    pub reason: &'a str,
    /// A sentence.
    pub message: &'a str,
    /// The container's exit code, if it has one.
    pub exit_code: Option<i64>,
}

/// How a pod is doing.
#[derive(Debug, Clone, Default)]
pub struct StatusReport<'a> {
    /// One word; empty when it is well.
    pub reason: &'a str,
    /// A sentence.
    pub message: &'a str,
    /// How often it was started again after it ended by itself.
    pub restarts: Option<u32>,
    /// How its container last ended.
    pub exit_code: Option<i64>,
}

/// What became of a write about one pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// Done, or done before.
    Done,
    /// The pod is not this node's as this assignment any more.
    Stale,
    /// Nobody asked to stop it: it is still wanted here.
    Wanted,
}

/// The blocking end of `pq:<node>`: one connection, one loop.
pub struct WorkQueue {
    connection: Dedicated,
    block: Duration,
    node: NodeName,
}

impl WorkQueue {
    /// Moves the oldest payload from pq to rq and gives it, or none after one block period.
    /// After an error or a dropped call make a new queue, and sweep rq: the payload may be there unseen.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        let mut pop = cmd("BRPOPLPUSH");
        pop.arg(keys::pq(&self.node)).arg(keys::rq(&self.node)).arg(self.block.as_secs_f64());
        let payload: Option<Vec<u8>> = self.connection.query(&pop).await?;
        Ok(payload.map(Bytes::from))
    }
}

impl Store {
    /// Begins a new life of a worker. What it was starting before goes back to its queue.
    pub async fn register(&self, node: &NodeName, facts: &NodeFacts) -> Result<Registration, StoreError> {
        let what = "registering";
        let incarnation = Incarnation::random();
        let mut register = call(&scripts::register);
        register.key(keys::node(node)).key(keys::NODES).key(keys::BEATS).key(keys::hb(node));
        register.key(keys::pq(node)).key(keys::rq(node)).key(keys::cs(node));
        register.arg(node.as_str()).arg(incarnation.as_str()).arg(super::services::to_json(&facts.labels));
        register.arg(facts.capacity.cpu_millis).arg(facts.capacity.memory_bytes).arg(facts.capacity.pods);
        register.arg(&facts.runtime).arg(&facts.engine_version).arg(&facts.version);
        let (answer, rest) = verdict(what, self.link.script(&register).await?)?;
        match (answer.as_str(), rest.into_iter().next()) {
            ("OK", Some(requeued)) => {
                let session = Session { store: self.clone(), node: node.clone(), incarnation };
                Ok(Registration::Registered { session, requeued: read(what, requeued)? })
            }
            ("DRAINING", _) => Ok(Registration::Draining),
            (other, _) => Err(unexpected(what, other)),
        }
    }
}

impl Session {
    /// The node this is a life of.
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// The store, for reading.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Opens the blocking end of this node's queue; `block` of 2 to 5 s.
    pub async fn work_queue(&self, block: Duration) -> Result<WorkQueue, StoreError> {
        let connection = self.store.link.dedicated(block + Duration::from_secs(5)).await?;
        Ok(WorkQueue { connection, block, node: self.node.clone() })
    }

    /// Moves up to `count` more payloads from pq to rq without waiting, oldest first.
    pub async fn take_more(&self, count: usize) -> Result<Vec<Bytes>, StoreError> {
        if count == 0 {
            return Ok(Vec::new());
        }
        // Mostly there are no more; to ask that alone is a tenth of the price.
        let waiting: u64 = self.store.link.query(cmd("LLEN").arg(keys::pq(&self.node))).await?;
        if waiting == 0 {
            return Ok(Vec::new());
        }
        let mut take = call(&scripts::take_work);
        take.key(keys::pq(&self.node)).key(keys::rq(&self.node)).arg(count);
        payloads("taking pods", self.store.link.script(&take).await?)
    }

    /// All that stands in rq, oldest first: what the sweep compares with what is being worked on.
    pub async fn starting(&self) -> Result<Vec<Bytes>, StoreError> {
        let mut range = cmd("LRANGE");
        range.arg(keys::rq(&self.node)).arg(0).arg(-1);
        let mut found = payloads("reading rq", self.store.link.query(&range).await?)?;
        found.reverse();
        Ok(found)
    }

    /// The payloads of the pods that run here, as cs has them.
    pub async fn container_set(&self) -> Result<Vec<Bytes>, StoreError> {
        self.store.container_set(&self.node).await
    }

    /// Says that the worker lives and how it is, and asks about containers it has.
    pub async fn heartbeat(
        &self,
        psi: Option<&Psi>,
        engine_problem: Option<&str>,
        asked: &[(PodId, AssignmentId)],
    ) -> Answer<HeartbeatReply> {
        let what = "sending a heartbeat";
        let mut beat = call(&scripts::heartbeat);
        beat.key(keys::node(&self.node))
            .key(keys::BEATS)
            .key(keys::hb(&self.node))
            .key(keys::stop(&self.node));
        beat.arg(self.node.as_str()).arg(self.incarnation.as_str());
        beat.arg(psi.map(super::services::to_json).unwrap_or_default())
            .arg(engine_problem.unwrap_or_default());
        for (id, assignment) in asked {
            beat.key(keys::pod(id)).arg(id.as_str()).arg(assignment.as_str());
        }
        let (answer, rest) = verdict(what, self.store.link.script(&beat).await?)?;
        let mut rest = rest.into_iter();
        match (answer.as_str(), rest.next(), rest.next(), rest.next(), rest.next()) {
            ("FENCED", Some(why), ..) if word(what, why.clone())? == "replaced" => Ok(Err(Fenced::Replaced)),
            ("FENCED", ..) => Ok(Err(Fenced::Dead)),
            ("OK", Some(changed), Some(stop), Some(foreign), Some(nodes)) => {
                let ids = |value| -> Result<Vec<PodId>, StoreError> {
                    let ids: Vec<String> = read(what, value)?;
                    Ok(ids.into_iter().filter_map(|id| PodId::new(id).ok()).collect())
                };
                let master_changed_at = read(what, changed)?;
                let (stop, foreign, nodes) = (ids(stop)?, ids(foreign)?, read(what, nodes)?);
                Ok(Ok(HeartbeatReply { master_changed_at, stop, foreign, nodes }))
            }
            (other, ..) => Err(unexpected(what, other)),
        }
    }

    /// Asks what to do with payloads in rq. After a change of master nothing starts for `pause`.
    pub async fn claim(
        &self,
        items: &[ClaimItem],
        attempts_allowed: u32,
        pause: Duration,
    ) -> Answer<ClaimReply> {
        let what = "claiming pods";
        let mut claim = call(&scripts::claim);
        claim
            .key(keys::node(&self.node))
            .key(keys::rq(&self.node))
            .key(keys::PUSHED)
            .key(keys::stop(&self.node))
            .key(keys::cs(&self.node));
        claim.arg(self.node.as_str()).arg(self.incarnation.as_str()).arg(attempts_allowed);
        claim.arg(pause.as_millis() as u64);
        for ClaimItem { payload, request, service } in items {
            claim.key(keys::pod(&payload.id)).key(keys::wanted(service.as_ref()));
            claim.arg(&payload.raw[..]).arg(payload.id.as_str()).arg(AssignmentId::random().as_str());
            claim.arg(payload.name.as_str()).arg(&payload.image).arg(payload.replica);
            claim.arg(request.cpu_millis).arg(request.memory_bytes).arg(u8::from(payload.spec.is_some()));
        }
        let (answer, rest) = verdict(what, self.store.link.script(&claim).await?)?;
        match answer.as_str() {
            "FENCED" => Ok(Err(Fenced::Dead)),
            "PAUSED" => {
                let left = rest.into_iter().next().ok_or_else(|| corrupt(what, "no pause given"))?;
                Ok(Ok(ClaimReply::Paused(Duration::from_millis(read(what, left)?))))
            }
            "OK" => {
                let claims: Result<Vec<_>, _> =
                    rest.into_iter().map(|value| read_claim(what, value)).collect();
                Ok(Ok(ClaimReply::Claims(claims?)))
            }
            other => Err(unexpected(what, other)),
        }
    }

    /// Says that pods run: from rq to cs. One answer each.
    pub async fn ack(&self, items: &[AckItem]) -> Answer<Vec<Ack>> {
        let what = "acknowledging pods";
        let mut ack = call(&scripts::ack);
        ack.key(keys::node(&self.node)).key(keys::rq(&self.node)).key(keys::cs(&self.node));
        ack.key(keys::stop(&self.node)).arg(self.node.as_str()).arg(self.incarnation.as_str());
        for AckItem { payload, assignment, address } in items {
            ack.key(keys::pod(&payload.id)).arg(&payload.raw[..]).arg(payload.id.as_str());
            ack.arg(assignment.as_str()).arg(address).arg(payload.name.as_str());
        }
        let (answer, rest) = verdict(what, self.store.link.script(&ack).await?)?;
        if answer == "FENCED" {
            return Ok(Err(Fenced::Dead));
        }
        let one = |value| match word(what, value)?.as_str() {
            "ok" => Ok(Ack::Running),
            "stop" => Ok(Ack::Stop),
            "stale" => Ok(Ack::Stale),
            other => Err(unexpected(what, other)),
        };
        rest.into_iter().map(one).collect::<Result<_, _>>().map(Ok)
    }

    /// Says that a pod ended. `payload` as it stands in cs (or rq); `service` as its record has it.
    pub async fn finish(
        &self,
        pod: PodRef<'_>,
        payload: &[u8],
        service: Option<&ServiceName>,
        report: &FinishReport<'_>,
    ) -> Answer<Write> {
        let outcome = match report.outcome {
            Outcome::Stopped => "stopped",
            Outcome::Succeeded => "succeeded",
            Outcome::Failed => "failed",
        };
        let mut finish = call(&scripts::finish);
        finish.key(keys::node(&self.node)).key(keys::rq(&self.node)).key(keys::cs(&self.node));
        finish.key(keys::stop(&self.node)).key(keys::wanted(service)).key(keys::pod(pod.id));
        finish.arg(self.node.as_str()).arg(self.incarnation.as_str()).arg(pod.id.as_str());
        finish.arg(pod.assignment.as_str()).arg(payload).arg(outcome).arg(report.reason).arg(report.message);
        finish.arg(report.exit_code.map(|code| code.to_string()).unwrap_or_default());
        self.write("finishing a pod", &finish).await
    }

    /// Says that the container of a running pod is gone without a trace: it is queued here again as a new assignment.
    pub async fn lost(&self, pod: PodRef<'_>, payload: &[u8]) -> Answer<Write> {
        let mut lost = call(&scripts::lost);
        lost.key(keys::node(&self.node))
            .key(keys::cs(&self.node))
            .key(keys::pq(&self.node))
            .key(keys::pod(pod.id));
        lost.arg(self.node.as_str()).arg(self.incarnation.as_str()).arg(pod.id.as_str());
        lost.arg(pod.assignment.as_str()).arg(payload).arg(AssignmentId::random().as_str());
        self.write("reporting a lost container", &lost).await
    }

    /// Says how a pod is doing, without moving it.
    pub async fn report(&self, pod: PodRef<'_>, status: &StatusReport<'_>) -> Answer<Write> {
        let mut report = call(&scripts::report);
        report.key(keys::node(&self.node)).key(keys::pod(pod.id));
        report.arg(self.node.as_str()).arg(self.incarnation.as_str()).arg(pod.id.as_str());
        report.arg(pod.assignment.as_str()).arg(status.reason).arg(status.message);
        report.arg(status.restarts.map(|n| n.to_string()).unwrap_or_default());
        report.arg(status.exit_code.map(|code| code.to_string()).unwrap_or_default());
        self.write("reporting on a pod", &report).await
    }

    /// Moves a payload from rq to the dead letters, byte for byte.
    pub async fn reject(&self, payload: &[u8], id: Option<&PodId>, reason: &str) -> Answer<Write> {
        let place = super::letters::Place::Worker(&self.node, &self.incarnation);
        match self.store.reject(place, payload, id, reason).await?.as_str() {
            "OK" => Ok(Ok(Write::Done)),
            "GONE" => Ok(Ok(Write::Stale)),
            "FENCED" => Ok(Err(Fenced::Dead)),
            other => Err(unexpected("rejecting a payload", other)),
        }
    }

    async fn write(&self, what: &str, call: &scripts::Call<'_>) -> Answer<Write> {
        match word(what, self.store.link.script(call).await?)?.as_str() {
            "OK" => Ok(Ok(Write::Done)),
            "STALE" => Ok(Ok(Write::Stale)),
            "WANTED" => Ok(Ok(Write::Wanted)),
            "FENCED" => Ok(Err(Fenced::Dead)),
            other => Err(unexpected(what, other)),
        }
    }
}

fn read_claim(what: &str, value: redis::Value) -> Result<Claim, StoreError> {
    let (verdict, rest) = verdict(what, value)?;
    let mut rest = rest.into_iter();
    let mut assignment_and_attempt = || -> Result<(String, u32), StoreError> {
        let missing = || corrupt(what, "a claim without its assignment");
        let assignment = word(what, rest.next().ok_or_else(missing)?)?;
        Ok((assignment, read(what, rest.next().ok_or_else(missing)?)?))
    };
    match verdict.as_str() {
        "start" => {
            let (assignment, attempt) = assignment_and_attempt()?;
            let assignment = AssignmentId::new(assignment).map_err(|e| corrupt(what, e))?;
            Ok(Claim::Start { assignment, attempt })
        }
        "exhausted" => Ok(Claim::Exhausted { attempt: assignment_and_attempt()?.1 }),
        "running" => Ok(Claim::Running),
        "stale" => Ok(Claim::Stale),
        "stopped" => Ok(Claim::Stopped),
        "orphan" => Ok(Claim::Orphan),
        "gone" => Ok(Claim::Gone),
        other => Err(unexpected(what, other)),
    }
}
