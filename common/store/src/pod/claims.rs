//! The pods that a worker starts: taken from its queue, claimed and acknowledged.

use std::time::Duration;

use bytes::Bytes;
use redis::{Value, cmd};

use crate::node::session::{Fenced, Session, SessionResult};
use crate::reply::{corrupt, read, unexpected, verdict, word};
use crate::scripts::{ack, claim, distinct, in_flight, take_work};
use crate::{StoreError, keys};
use model::ids::{AssignmentId, NodeName};
use model::network::{ContainerNetwork, published_field};
use model::node::Resources;
use model::pod::payload::Payload;
use model::spec::HostPorts;
use redis_link::DedicatedConnection;

#[derive(Debug, Clone)]
pub struct ClaimItem {
    pub payload: Payload,
    /// Used if the pod is new.
    pub request: Resources,
    /// Used if the pod is new.
    pub host_ports: HostPorts,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    Start {
        assignment: AssignmentId,
        /// From 1.
        attempt: u32,
    },
    /// The duplicate was dropped.
    Running,
    /// The duplicate was dropped.
    Stale,
    /// Stop its containers, then finish it.
    Stopping,
    /// Reject it.
    Exhausted {
        attempt: u32,
    },
    /// Reject it.
    UnknownService,
    /// Reject it.
    BrokenRecord,
    Gone,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimReply {
    Claims(Vec<Claim>),
    /// The master changed: start nothing for this time.
    Paused(Duration),
}

#[derive(Debug, Clone)]
pub struct AckItem {
    pub payload: Payload,
    pub assignment: AssignmentId,
    pub network: ContainerNetwork,
    /// Unmet readiness conditions.
    pub starting: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    Running,
    /// Stop it, then finish it.
    Stop,
    /// Remove the container and report nothing.
    Stale,
    /// Nothing was recorded. Let the container run.
    BrokenRecord,
}

/// One connection for one loop.
pub struct WorkQueue {
    connection: DedicatedConnection,
    block: Duration,
    node: NodeName,
}

impl WorkQueue {
    /// Returns `None` after one block period.
    ///
    /// # Errors
    /// Create a new queue and sweep rq: a payload may have been moved there.
    ///
    /// # Cancel safety
    /// Not cancel safe: do the same after a dropped call.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        let mut pop = cmd("BRPOPLPUSH");
        pop.arg(keys::pq(&self.node)).arg(keys::rq(&self.node)).arg(self.block.as_secs_f64());
        self.connection.query(&pop).await
    }
}

impl Session {
    /// `block` should be 2 to 5 s.
    pub async fn work_queue(&self, block: Duration) -> Result<WorkQueue, StoreError> {
        let connection = self.store.link.dedicated(block + Duration::from_secs(5)).await?;
        Ok(WorkQueue { connection, block, node: self.node.clone() })
    }

    /// Returns the oldest first, without waiting.
    pub async fn pop_more(&self, count: usize) -> Result<Vec<Bytes>, StoreError> {
        if count == 0 {
            return Ok(Vec::new());
        }
        // `LLEN` costs a tenth of the script, and usually there are none.
        let waiting: u64 = self.store.link.query(cmd("LLEN").arg(keys::pq(&self.node))).await?;
        if waiting == 0 {
            return Ok(Vec::new());
        }
        let (pq, rq) = (keys::pq(&self.node), keys::rq(&self.node));
        let take = take_work::Head { pq, rq, dq: keys::DQ, max_count: count };
        read("taking pods", self.store.link.script(&take.call()).await?)
    }

    /// Returns the oldest first. An oversized payload becomes a dead letter.
    pub async fn in_flight(&self) -> Result<Vec<Bytes>, StoreError> {
        let (rq, pq) = (keys::rq(&self.node), keys::pq(&self.node));
        let in_flight = in_flight::Head { rq, dq: keys::DQ, pq };
        let mut found: Vec<Bytes> = read("reading rq", self.store.link.script(&in_flight.call()).await?)?;
        found.reverse();
        Ok(found)
    }

    /// After a change of the master nothing starts for `pause`.
    pub async fn claim(
        &self,
        items: &[ClaimItem],
        attempts_allowed: u32,
        pause: Duration,
    ) -> SessionResult<ClaimReply> {
        let what = "claiming pods";
        let pushed_pods: Vec<_> =
            (1_usize..).zip(items).filter(|(_, item)| item.payload.spec.is_none()).collect();
        let mut call = claim::Head {
            node_key: keys::node(&self.node),
            rq: keys::rq(&self.node),
            pushed: keys::PUSHED,
            cs: keys::cs(&self.node),
            node: &self.node,
            incarnation: &self.incarnation,
            max_attempts: attempts_allowed,
            pause_ms: pause,
            pushed_pod_count: pushed_pods.len(),
        }
        .call();
        for (pod_index, ClaimItem { payload, request, host_ports, .. }) in pushed_pods {
            call.add(claim::PushedPod {
                pod_index,
                new_assignment: AssignmentId::random(),
                name: &payload.name,
                image: &payload.image,
                replica: payload.replica,
                ports: host_ports.as_str(),
                resources: request,
            });
        }
        for ClaimItem { payload, .. } in items {
            call.add(claim::Pod { pod_key: keys::pod(&payload.id), payload: &payload.raw });
        }
        let (answer, rest) = verdict(what, self.store.link.script(&call).await?)?;
        match answer.as_str() {
            "FENCED" => Ok(Err(Fenced::Dead)),
            "PAUSED" => {
                let left = rest.into_iter().next().ok_or_else(|| corrupt(what, "the pause is missing"))?;
                Ok(Ok(ClaimReply::Paused(Duration::from_millis(read(what, left)?))))
            }
            "OK" => {
                let claims: Vec<(String, Value, Value)> = read(what, Value::Array(rest))?;
                let claims = claims.into_iter().map(|claim| read_claim(what, claim));
                Ok(Ok(ClaimReply::Claims(claims.collect::<Result<_, _>>()?)))
            }
            other => Err(unexpected(what, other)),
        }
    }

    /// Returns one result per pod.
    pub async fn ack(&self, items: &[AckItem]) -> SessionResult<Vec<Ack>> {
        let what = "acknowledging pods";
        let (services, service_index) =
            distinct(items.iter().map(|item| (item.payload.service(), &item.payload.name)));
        let mut call = ack::Head {
            node_key: keys::node(&self.node),
            rq: keys::rq(&self.node),
            cs: keys::cs(&self.node),
            stop_set: keys::stop(&self.node),
            node: &self.node,
            incarnation: &self.incarnation,
            service_count: services.len(),
        }
        .call();
        for (service, name) in services {
            call.add(ack::Service { ep_key: keys::endpoints_of(service.as_ref()), name });
        }
        for (AckItem { payload, assignment, network, starting }, service_index) in
            items.iter().zip(service_index)
        {
            call.add(ack::Pod {
                pod_key: keys::pod(&payload.id),
                payload: &payload.raw,
                assignment,
                address: &network.address,
                published: published_field(assignment, &network.ports),
                starting: starting.as_str(),
                service_index,
            });
        }
        let rest = match self.run(what, &call).await? {
            Ok(rest) => rest,
            Err(fenced) => return Ok(Err(fenced)),
        };
        let one = |value| match word(what, value)?.as_str() {
            "ok" => Ok(Ack::Running),
            "stop" => Ok(Ack::Stop),
            "stale" => Ok(Ack::Stale),
            "broken" => Ok(Ack::BrokenRecord),
            other => Err(unexpected(what, other)),
        };
        rest.into_iter().map(one).collect::<Result<_, _>>().map(Ok)
    }
}

fn read_claim(
    what: &str,
    (verdict, assignment, attempt): (String, Value, Value),
) -> Result<Claim, StoreError> {
    match verdict.as_str() {
        "start" => {
            let assignment = AssignmentId::new(word(what, assignment)?).map_err(|e| corrupt(what, e))?;
            Ok(Claim::Start { assignment, attempt: read(what, attempt)? })
        }
        "exhausted" => Ok(Claim::Exhausted { attempt: read(what, attempt)? }),
        "running" => Ok(Claim::Running),
        "stale" => Ok(Claim::Stale),
        "stopping" => Ok(Claim::Stopping),
        "unknown_service" => Ok(Claim::UnknownService),
        "broken" => Ok(Claim::BrokenRecord),
        "gone" => Ok(Claim::Gone),
        other => Err(unexpected(what, other)),
    }
}
