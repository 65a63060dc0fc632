//! The scheduler's view of the queue: take, assign, park.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::{Value, cmd};

use crate::loaded::field;
use crate::reply::{list, parse, read, unexpected, word};
use crate::scripts::{Call, assign, distinct, park, take};
use crate::{Store, StoreError, keys};
use model::RedisMillis;
use model::ids::{AssignmentId, Incarnation, NodeName, PodId, SchedulerId, ServiceName};
use model::node::{ResourceIds, Resources};
use model::pod::Refusal;
use model::pod::payload::Payload;
use model::service::volume::VolumeClaim;
use model::spec::{HostPorts, NamedRequest};
use redis_link::DedicatedConnection;

/// A few milliseconds of Redis.
pub const TAKEN_AT_ONCE: usize = 4096;

#[derive(Debug, Clone)]
pub struct Assignment {
    pub payload: Payload,
    pub node: NodeName,
    pub incarnation: Option<Incarnation>,
    pub request: Resources,
    pub host_ports: HostPorts,
    /// `None` for nearly all pods.
    pub named: Option<NamedAssignment>,
    /// Unbound ones are bound to the node.
    pub volumes: Vec<VolumeClaim>,
    /// Of the node, if its labels were judged.
    pub seen_labels: Option<u64>,
    /// If rules that must hold count the pods of its service, or they are ordinals.
    pub counted: Option<CountedAssignment>,
}

/// A pod that gets ids of named resources: the script chooses the first free ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedAssignment {
    pub request: Arc<NamedRequest>,
    /// By the node, in the session with [`Assignment::incarnation`].
    pub offered: ResourceIds,
}

/// Refused if another pod of the service was assigned since its pods were counted, or one before it in the
/// same script was refused. The same for all pods of the service in one script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedAssignment {
    /// See [`PlacedService::mark`](crate::PlacedService::mark).
    pub seen_mark: String,
    /// Unique; written if all pods were assigned.
    pub next_mark: String,
    /// A pod that waits may have a place once others are assigned.
    pub opens_domains: bool,
    /// Refused as well if pods of these other services were assigned since theirs were counted: with their
    /// marks, as seen.
    pub related: Vec<(ServiceName, String)>,
}

impl CountedAssignment {
    fn compared(seen_mark: String) -> Self {
        Self { seen_mark, next_mark: String::new(), opens_domains: false, related: Vec::new() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssignOutcome {
    Assigned,
    /// The payload was dropped.
    Stale,
    Gone,
    /// Still in flight: reject it.
    UnknownService,
    /// Still in flight: decide again with fresh data.
    Refused,
}

#[derive(Debug, Clone)]
pub struct Parked {
    pub payload: Payload,
    pub request: Resources,
    pub refusals: Vec<Refusal>,
    /// The refusals as a sentence.
    pub message: String,
    /// A word; pods of one class fit the same nodes, and wait until one of them fits. `None` if the pod waits
    /// for its backoff.
    pub class: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParkOutcome {
    Parked,
    /// The payload was dropped.
    Stale,
    Gone,
    /// Still in flight: reject it.
    UnknownService,
    /// Still in flight: read the nodes again.
    Changed,
}

/// One connection for one loop.
pub struct SchedulerQueue {
    connection: DedicatedConnection,
    block: Duration,
    id: SchedulerId,
}

impl SchedulerQueue {
    /// Waits for one block period. Returns at most [`TAKEN_AT_ONCE`] in-flight payloads, oldest first.
    ///
    /// # Errors
    /// Create a new queue: the connection may still receive a late reply.
    ///
    /// # Cancel safety
    /// Not cancel safe: create a new queue as well. A popped payload is in flight, and the next
    /// [`Store::take`] returns it.
    pub async fn next(&mut self, max: usize) -> Result<Vec<Bytes>, StoreError> {
        let mut pop = cmd("BRPOPLPUSH");
        pop.arg(keys::SQ).arg(keys::in_flight(&self.id)).arg(self.block.as_secs_f64());
        let take = take_call(&self.id, max.min(TAKEN_AT_ONCE), 0);
        let (_popped, in_flight): (Value, Value) = self.connection.query_then(&pop, &take).await?;
        read(TAKING, in_flight)
    }
}

impl Store {
    /// Returns since when each pod is in its phase. `None` if it has no record, or a broken one.
    ///
    /// # Errors
    /// Broken keys cause none.
    pub async fn pods_since(&self, pods: &[&PodId]) -> Result<Vec<Option<RedisMillis>>, StoreError> {
        let get = |id: &&PodId| field(keys::pod(id), "since");
        let read_one = |_: &&PodId, reply| read::<Option<String>>("reading since when a pod waits", reply);
        let since = self.load(pods, get, read_one).await?.options();
        Ok(since.map(|since| since.and_then(|since| since.parse().ok())).collect())
    }

    /// `block` should be 2 to 5 s.
    pub async fn scheduler_queue(
        &self,
        id: &SchedulerId,
        block: Duration,
    ) -> Result<SchedulerQueue, StoreError> {
        let connection = self.link.dedicated(block + Duration::from_secs(5)).await?;
        Ok(SchedulerQueue { connection, block, id: id.clone() })
    }

    pub async fn waiting_pods(&self) -> Result<usize, StoreError> {
        self.link.query(cmd("LLEN").arg(keys::SQ)).await
    }

    /// Fills the in-flight list up to `max`, and shows that the scheduler lives. Returns the list, oldest
    /// first.
    pub async fn take(&self, id: &SchedulerId, max: usize) -> Result<Vec<Bytes>, StoreError> {
        let mut in_flight: Vec<Bytes> = Vec::new();
        loop {
            let known = in_flight.len();
            let until = max.min(known + TAKEN_AT_ONCE);
            let taken = self.link.script(&take_call(id, until, known)).await?;
            in_flight.extend(read::<Vec<Bytes>>(TAKING, taken)?);
            if in_flight.len() < until || until == max {
                return Ok(in_flight);
            }
        }
    }

    /// Returns one outcome per pod. All assignments to one node must have the same incarnation. The oldest
    /// in-flight pods, in their order, are cheapest.
    pub async fn assign(
        &self,
        id: &SchedulerId,
        dead_after: Duration,
        assignments: &[Assignment],
    ) -> Result<Vec<AssignOutcome>, StoreError> {
        self.assign_as_seen(id, dead_after, assignments, &|_| None).await
    }

    /// A node refuses with more pods than `seen` returns, so that several schedulers do not all choose the
    /// same idle node.
    pub async fn assign_as_seen(
        &self,
        id: &SchedulerId,
        dead_after: Duration,
        assignments: &[Assignment],
        seen: &(dyn Fn(&NodeName) -> Option<u64> + Sync),
    ) -> Result<Vec<AssignOutcome>, StoreError> {
        let what = "assigning pods";
        let replies = list(what, self.link.script(&assign_call(id, dead_after, assignments, seen)).await?)?;
        let outcome = |value| match word(what, value)?.as_str() {
            "ok" => Ok(AssignOutcome::Assigned),
            "stale" => Ok(AssignOutcome::Stale),
            "gone" => Ok(AssignOutcome::Gone),
            "unknown_service" => Ok(AssignOutcome::UnknownService),
            "not_ready" | "cordoned" | "engine" | "full" | "crowded" | "volume" | "unreported"
            | "conflict" | "relabelled" | "rule" => Ok(AssignOutcome::Refused),
            other => Err(unexpected(what, other)),
        };
        replies.into_iter().map(outcome).collect()
    }

    /// Returns one outcome per pod.
    pub async fn park(&self, id: &SchedulerId, parked: &[Parked]) -> Result<Vec<ParkOutcome>, StoreError> {
        self.park_as_seen(id, parked, None).await
    }

    /// `seen_freed` is [`Store::freed`] from before the nodes were read: if room has appeared since, no pod
    /// is parked.
    pub async fn park_as_seen(
        &self,
        id: &SchedulerId,
        parked: &[Parked],
        seen_freed: Option<u64>,
    ) -> Result<Vec<ParkOutcome>, StoreError> {
        let what = "recording unschedulable pods";
        let mut call = park::Head {
            in_flight: keys::in_flight(id),
            uq: keys::UQ,
            uq_at: keys::UQ_AT,
            uq_why: keys::UQ_WHY,
            uq_class: keys::UQ_CLASS,
            uq_by_class: keys::UQ_BY_CLASS,
            pushed: keys::PUSHED,
            seen_freed,
        }
        .call();
        for Parked { payload, request, refusals, message, class } in parked {
            call.add(park::Pod {
                pod_key: keys::pod(&payload.id),
                uuid: &payload.id,
                class: class.as_deref(),
                payload: &payload.raw,
                refusals: crate::json::to_json(refusals),
                message,
                name: &payload.name,
                image: &payload.image,
                replica: payload.replica,
                in_service: payload.spec.is_some(),
                resources: request,
            });
        }
        let replies = list(what, self.link.script(&call).await?)?;
        let outcome = |value| match word(what, value)?.as_str() {
            "ok" => Ok(ParkOutcome::Parked),
            "stale" => Ok(ParkOutcome::Stale),
            "gone" => Ok(ParkOutcome::Gone),
            "unknown_service" => Ok(ParkOutcome::UnknownService),
            "changed" => Ok(ParkOutcome::Changed),
            other => Err(unexpected(what, other)),
        };
        replies.into_iter().map(outcome).collect()
    }

    /// A number that changes when room or a node appears.
    pub async fn freed(&self) -> Result<u64, StoreError> {
        let freed: Option<Vec<u8>> = self.link.query(cmd("HGET").arg(keys::META).arg("freed")).await?;
        Ok(freed.and_then(|freed| parse(&freed)).unwrap_or(0))
    }
}

const TAKING: &str = "taking pods";

/// The reply omits the `known` oldest.
fn take_call(id: &SchedulerId, until: usize, known: usize) -> Call<'static> {
    take::Head {
        sq: keys::SQ,
        in_flight: keys::in_flight(id),
        schedulers: keys::SCHEDULERS,
        dq: keys::DQ,
        scheduler: id,
        max_in_flight: until,
        known_count: known,
    }
    .call()
}

fn assign_call(
    id: &SchedulerId,
    dead_after: Duration,
    assignments: &[Assignment],
    seen: &(dyn Fn(&NodeName) -> Option<u64> + Sync),
) -> Call<'static> {
    // Nodes and requests are passed once; pods refer to them by index from 1.
    let mut nodes: Vec<&Assignment> = Vec::new();
    let mut node_index = HashMap::new();
    for assignment in assignments {
        node_index.entry(&assignment.node).or_insert_with(|| {
            nodes.push(assignment);
            nodes.len()
        });
    }
    let (requests, request_index) = distinct(assignments.iter().map(|one| {
        let named = one.named.as_ref().map(|named| &named.request);
        (&one.request, &one.host_ports, named, one.payload.service())
    }));
    let counted = counted_services(assignments);
    let pushed_pods: Vec<_> =
        (1_usize..).zip(assignments).filter(|(_, one)| one.payload.spec.is_none()).collect();
    let mut call = assign::Head {
        in_flight: keys::in_flight(id),
        pushed: keys::PUSHED,
        volumes: keys::VOLUMES,
        reports: keys::VOLUME_REPORTS,
        copies: keys::VOLUME_COPIES,
        given_up: keys::GIVEN_UP_VOLUMES,
        node_count: nodes.len(),
        request_count: requests.len(),
        counted_count: counted.len(),
        volume_count: assignments.iter().map(|assignment| assignment.volumes.len()).sum::<usize>(),
        pushed_pod_count: pushed_pods.len(),
        dead_after_ms: dead_after,
    }
    .call();
    let mut offered: HashMap<&NodeName, &ResourceIds> = HashMap::new();
    for Assignment { node, named, .. } in assignments {
        if let Some(NamedAssignment { offered: of_node, .. }) = named {
            offered.insert(node, of_node);
        }
    }
    let mut seen_labels = HashMap::new();
    for Assignment { node, seen_labels: seen, .. } in assignments {
        if let Some(seen) = seen {
            seen_labels.insert(node, *seen);
        }
    }
    for Assignment { node, incarnation, .. } in nodes {
        call.add(assign::Node {
            node_key: keys::node(node),
            pq: keys::pq(node),
            node,
            seen_incarnation: incarnation.as_ref(),
            expected_pods: seen(node),
            seen_labels: seen_labels.get(node).copied(),
            offered_ids: offered.get(node).map(ToString::to_string),
        });
    }
    for (resources, ports, named, service) in requests {
        let named = named.map(ToString::to_string);
        call.add(assign::Request { ports: ports.as_str(), named, name: service.as_ref(), resources });
    }
    for (service, one) in &counted {
        let CountedAssignment { seen_mark, next_mark, opens_domains, related } = &**one;
        let related: Vec<&str> = related.iter().map(|(name, _)| name.as_str()).collect();
        call.add(assign::Counted {
            service_key: keys::service(service),
            uq: keys::UQ,
            name: service,
            seen_mark,
            next_mark,
            opens_domains: *opens_domains,
            related: related.join(" "),
        });
    }
    for (index, assignment) in assignments.iter().enumerate() {
        for claim in &assignment.volumes {
            call.add(assign::Volume {
                volume_key: keys::volume(&claim.name),
                pod_index: index + 1,
                name: &claim.name,
                service: &claim.service,
                source: &claim.source,
                replica: claim.scope.to_string(),
                space: claim.space,
            });
        }
    }
    for (pod_index, Assignment { payload, .. }) in pushed_pods {
        let Payload { name, image, replica, .. } = payload;
        call.add(assign::PushedPod { pod_index, name, image, replica: *replica });
    }
    for (Assignment { payload, node, .. }, request_index) in assignments.iter().zip(request_index) {
        call.add(assign::Pod {
            pod_key: keys::pod(&payload.id),
            payload: &payload.raw,
            node_index: node_index[node],
            request_index,
            new_assignment: AssignmentId::random(),
        });
    }
    call
}

/// Also services without a pod among these, whose marks are only compared.
fn counted_services(assignments: &[Assignment]) -> BTreeMap<ServiceName, Cow<'_, CountedAssignment>> {
    let mut counted: BTreeMap<ServiceName, Cow<'_, CountedAssignment>> = BTreeMap::new();
    let pods = || assignments.iter().filter_map(|one| Some((one.payload.service()?, one.counted.as_ref()?)));
    for (service, one) in pods() {
        counted.entry(service).or_insert(Cow::Borrowed(one));
    }
    for (name, seen_mark) in pods().flat_map(|(_, one)| &one.related) {
        let only_compared = || Cow::Owned(CountedAssignment::compared(seen_mark.clone()));
        counted.entry(name.clone()).or_insert_with(only_compared);
    }
    counted
}
