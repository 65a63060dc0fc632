//! The session of a worker. Every operation carries its incarnation: a worker that was declared dead gets
//! [`Fenced`] and has changed nothing (invariant 3).

use std::time::Duration;

use bytes::Bytes;
use redis::Value;

use crate::reply::{corrupt, read, unexpected, verdict, word};
use crate::scripts::{heartbeat, register};
use crate::{Store, StoreError, keys};
use model::RedisMillis;
use model::ids::{AssignmentId, ClusterId, HolderId, Incarnation, NodeName, PodId};
use model::node::timing::Timing;
use model::node::{NodeInfo, Psi};

/// The right of a worker to write as its node, from one registration to the next.
#[derive(Clone)]
pub struct Session {
    pub(crate) store: Store,
    pub(crate) node: NodeName,
    pub(crate) incarnation: Incarnation,
    pub(crate) cluster: ClusterId,
}

#[derive(Debug, Clone, Copy)]
pub struct KnownCluster<'a> {
    pub id: &'a ClusterId,
    /// For display.
    pub containers: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct Claimant<'a> {
    pub holder: &'a HolderId,
    /// Another holder loses the name after this silence, but not before its own times allow.
    pub takes_over_after: Duration,
    pub timing: Timing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameTaken {
    pub since: RedisMillis,
    pub silence: Duration,
    /// Further silence until it loses the name.
    pub left: Duration,
    /// Every change of this value is a heartbeat.
    pub last_heartbeat: String,
}

/// Run id and database. While it is unchanged, no other Redis has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisProcess(pub String);

#[allow(clippy::large_enum_variant, reason = "one exists per worker, for a moment")]
pub enum Registration {
    Registered {
        session: Session,
        /// Payloads that went back from rq to pq.
        requeued: usize,
        cluster: ClusterId,
    },
    /// Its pods are still being moved: retry soon.
    Draining,
    /// No session has begun.
    Taken(NameTaken),
    /// This Redis was emptied, or is another one. No session has begun.
    Held {
        /// The cluster of this Redis, if any.
        found: Option<ClusterId>,
        redis: RedisProcess,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fenced {
    /// It owns no pods. Stop them, and register again.
    Dead,
    /// Another worker has its name, or a failover lost this registration. Register again.
    Replaced,
    /// This Redis was emptied, or is another one. Leave all containers alone, and register again.
    UnknownCluster,
}

pub type SessionResult<T> = Result<Result<T, Fenced>, StoreError>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatReply {
    /// When this Redis became master or restarted; 0 if never.
    pub master_changed_at: RedisMillis,
    pub stop: Vec<PodId>,
    pub foreign: Vec<PodId>,
    /// Foreign pods without a record.
    pub unknown: Vec<PodId>,
    pub redis: RedisProcess,
    /// Pods with an invalid record: their node is unknown.
    pub broken: Vec<PodId>,
    /// Nodes that are not declared dead.
    pub nodes: u64,
}

impl Store {
    /// Starting pods go back to the queue. A worker without a cluster joins that of this Redis. The name of
    /// another holder is taken over only if that one is silent.
    pub async fn register(
        &self,
        node: &NodeName,
        facts: &NodeInfo,
        claimant: Claimant<'_>,
        known: Option<KnownCluster<'_>>,
    ) -> Result<Registration, StoreError> {
        let what = "registering";
        let incarnation = Incarnation::random_of(claimant.holder);
        let register = register::Head {
            node_key: keys::node(node),
            nodes: keys::NODES,
            beats: keys::BEATS,
            heartbeat_key: keys::hb(node),
            pq: keys::pq(node),
            rq: keys::rq(node),
            cs: keys::cs(node),
            stop_set: keys::stop(node),
            held: keys::HELD,
            reports: keys::VOLUME_REPORTS,
            node,
            incarnation: &incarnation,
            labels: crate::json::to_json(&facts.labels),
            max_pods: facts.capacity.pods,
            runtime: &facts.runtime,
            engine_version: &facts.engine_version,
            version: &facts.version,
            known_cluster: known.map(|known| known.id),
            new_cluster: ClusterId::random(),
            containers: known.map_or(0, |known| known.containers),
            takeover_after_ms: claimant.takes_over_after,
            reserved: crate::json::to_json(&facts.reserved),
            engine_id: &facts.engine_id,
            times: claimant.timing.to_stored(&incarnation),
            settings: facts.settings.as_ref().map(|settings| settings.to_stored(&incarnation)),
            resources: &facts.capacity,
        };
        let (answer, rest) = verdict(what, self.link.script(&register.call()).await?)?;
        if answer == "TAKEN" {
            return Ok(Registration::Taken(name_taken(what, rest)?));
        }
        let mut rest = rest.into_iter();
        match (answer.as_str(), rest.next(), rest.next()) {
            ("OK", Some(requeued), Some(cluster)) => {
                let cluster =
                    ClusterId::new(word(what, cluster)?).map_err(|invalid| corrupt(what, invalid))?;
                let session = Session {
                    store: self.clone(),
                    node: node.clone(),
                    incarnation,
                    cluster: cluster.clone(),
                };
                Ok(Registration::Registered { session, requeued: read(what, requeued)?, cluster })
            }
            ("DRAINING", ..) => Ok(Registration::Draining),
            ("HOLD", Some(found), Some(run_id)) => Ok(Registration::Held {
                found: ClusterId::new(word(what, found)?).ok(),
                redis: self.redis_process(&word(what, run_id)?),
            }),
            (other, ..) => Err(unexpected(what, other)),
        }
    }
}

fn name_taken(what: &'static str, reply: Vec<Value>) -> Result<NameTaken, StoreError> {
    let [since, silence, left, last_heartbeat] =
        <[Value; 4]>::try_from(reply).map_err(|_| unexpected(what, "TAKEN"))?;
    let millis = |value| read(what, value).map(Duration::from_millis);
    let last_heartbeat: Vec<u8> = read(what, last_heartbeat)?;
    Ok(NameTaken {
        since: read(what, since)?,
        silence: millis(silence)?,
        left: millis(left)?,
        last_heartbeat: String::from_utf8_lossy(&last_heartbeat).into_owned(),
    })
}

impl Store {
    fn redis_process(&self, run_id: &str) -> RedisProcess {
        RedisProcess(format!("{run_id}/{}", self.link.database()))
    }
}

impl Session {
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    pub fn incarnation(&self) -> &Incarnation {
        &self.incarnation
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub async fn container_set(&self) -> Result<Vec<Bytes>, StoreError> {
        self.store.container_set(&self.node).await
    }

    /// Checks which of the `asked` pods the worker still owns. `containers_held` counts containers without a
    /// record.
    pub async fn heartbeat(
        &self,
        psi: Option<&Psi>,
        engine_problem: Option<&str>,
        containers_held: usize,
        asked: &[(PodId, AssignmentId)],
    ) -> SessionResult<HeartbeatReply> {
        let what = "sending a heartbeat";
        let mut call = heartbeat::Head {
            node_key: keys::node(&self.node),
            beats: keys::BEATS,
            heartbeat_key: keys::hb(&self.node),
            stop_set: keys::stop(&self.node),
            held: keys::HELD,
            node: &self.node,
            incarnation: &self.incarnation,
            psi: psi.map(crate::json::to_json),
            engine_problem,
            cluster: &self.cluster,
            containers_held,
        }
        .call();
        for (id, assignment) in asked {
            call.add(heartbeat::Pod { pod_key: keys::pod(id), uuid: id, assignment });
        }
        let (answer, rest) = verdict(what, self.store.link.script(&call).await?)?;
        let mut rest = rest.into_iter();
        if answer == "FENCED" {
            let why = rest.next().map(|why| word(what, why)).transpose()?;
            return Ok(Err(match why.as_deref() {
                Some("replaced") => Fenced::Replaced,
                Some("unknown") => Fenced::UnknownCluster,
                _ => Fenced::Dead,
            }));
        }
        let mut next = || rest.next();
        match (answer.as_str(), [next(), next(), next(), next(), next(), next(), next()]) {
            (
                "OK",
                [
                    Some(changed),
                    Some(stop),
                    Some(foreign),
                    Some(nodes),
                    Some(broken),
                    Some(run_id),
                    Some(unknown),
                ],
            ) => {
                // Other programs may add any bytes. An error would expire the lease of a worker whose
                // heartbeat Redis has recorded.
                let ids = |value| -> Result<Vec<PodId>, StoreError> {
                    let ids: Vec<Vec<u8>> = read(what, value)?;
                    let id = |bytes| PodId::new(String::from_utf8(bytes).ok()?).ok();
                    Ok(ids.into_iter().filter_map(id).collect())
                };
                Ok(Ok(HeartbeatReply {
                    master_changed_at: read(what, changed)?,
                    stop: ids(stop)?,
                    foreign: ids(foreign)?,
                    unknown: ids(unknown)?,
                    redis: self.store.redis_process(&word(what, run_id)?),
                    broken: ids(broken)?,
                    nodes: read(what, nodes)?,
                }))
            }
            (other, ..) => Err(unexpected(what, other)),
        }
    }
}
