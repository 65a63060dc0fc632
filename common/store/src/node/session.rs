//! The session of a worker. Every operation carries its incarnation: a worker that was declared dead gets
//! [`Fenced`] and has changed nothing (invariant 3).

use std::time::Duration;

use bytes::Bytes;
use redis::Value;

use crate::reply::{corrupt, names, read, unexpected, verdict, word};
use crate::scripts::{Call, heartbeat, register};
use crate::{Store, StoreError, keys};
use model::RedisMillis;
use model::ids::{AssignmentId, ClusterId, HolderId, Incarnation, NodeName, PodId};
use model::node::labels::OwnLabels;
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
    /// Those of an operator that the worker has saved. They count if Redis has none.
    pub own_labels: Option<&'a OwnLabels>,
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
            own_labels: known.and_then(|known| known.own_labels).map(crate::json::to_json),
            resources: &facts.capacity,
        };
        let (answer, rest) = verdict(what, self.link.script(&register.call()).await?)?;
        match answer.as_str() {
            "OK" => {
                let (requeued, cluster): (_, String) = read(what, Value::Array(rest))?;
                let cluster = ClusterId::new(cluster).map_err(|invalid| corrupt(what, invalid))?;
                let session = Session {
                    store: self.clone(),
                    node: node.clone(),
                    incarnation,
                    cluster: cluster.clone(),
                };
                Ok(Registration::Registered { session, requeued, cluster })
            }
            "DRAINING" => Ok(Registration::Draining),
            "TAKEN" => Ok(Registration::Taken(name_taken(what, rest)?)),
            "HOLD" => {
                let (found, run_id): (String, String) = read(what, Value::Array(rest))?;
                let redis = self.redis_process(&run_id);
                Ok(Registration::Held { found: ClusterId::new(found).ok(), redis })
            }
            other => Err(unexpected(what, other)),
        }
    }
}

fn name_taken(what: &'static str, reply: Vec<Value>) -> Result<NameTaken, StoreError> {
    let (since, silence, left, last_heartbeat): (_, _, _, Vec<u8>) = read(what, Value::Array(reply))?;
    Ok(NameTaken {
        since,
        silence: Duration::from_millis(silence),
        left: Duration::from_millis(left),
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
        match answer.as_str() {
            "FENCED" => {
                let why = rest.into_iter().next().map(|why| word(what, why)).transpose()?;
                Ok(Err(match why.as_deref() {
                    Some("replaced") => Fenced::Replaced,
                    Some("unknown") => Fenced::UnknownCluster,
                    _ => Fenced::Dead,
                }))
            }
            "OK" => {
                let (changed_at, stop, foreign, nodes, broken, run_id, unknown): (_, _, _, _, _, String, _) =
                    read(what, Value::Array(rest))?;
                // Other programs may add any bytes: `names` skips them, because an error would expire the
                // lease of a worker whose heartbeat Redis has recorded.
                Ok(Ok(HeartbeatReply {
                    master_changed_at: changed_at,
                    stop: names(stop),
                    foreign: names(foreign),
                    unknown: names(unknown),
                    redis: self.store.redis_process(&run_id),
                    broken: names(broken),
                    nodes,
                }))
            }
            other => Err(unexpected(what, other)),
        }
    }

    /// Runs a script that replies `FENCED` or `OK`. Returns the values after `OK`.
    pub(crate) async fn run(&self, what: &str, call: &Call<'_>) -> SessionResult<Vec<Value>> {
        let (answer, rest) = verdict(what, self.store.link.script(call).await?)?;
        match answer.as_str() {
            "OK" => Ok(Ok(rest)),
            "FENCED" => Ok(Err(Fenced::Dead)),
            other => Err(unexpected(what, other)),
        }
    }
}
