//! Converts domain types to API types. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use api_types::{
    DeadLetterView, DrainOrderView, GenerationOutcomeView, GenerationView, NamedResourceView, NodeQueuesView,
    NodeView, PodView, QueueItem, QueuesOfNode,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use model::RedisMillis;
use model::ids::{NodeName, ResourceId};
use model::node::drain::Drain;
use model::node::{Node, NodeKind, NodeState, ResourceIds};
use model::pod::PodRecord;
use model::pod::image::ImageContent;
use model::spec::PodSpec;
use model::time::rfc3339;
use store::{DeadLetter, GenerationOutcome, NodeQueues, PeekedPayload, UnschedulablePod};

pub(crate) fn generation(
    generation: u64,
    until: Option<RedisMillis>,
    outcome: GenerationOutcome,
    (pod, images): (PodSpec, Vec<ImageContent>),
) -> GenerationView {
    let PodSpec {
        kind: _,
        mode: _,
        containers,
        on_disconnect,
        stop_grace_period,
        drain,
        stateful,
        resources,
    } = pod;
    let (outcome, message) = match outcome {
        GenerationOutcome::Unknown => (None, String::new()),
        GenerationOutcome::Good => (Some(GenerationOutcomeView::Good), String::new()),
        GenerationOutcome::Failed(why) => (Some(GenerationOutcomeView::Failed), why),
        GenerationOutcome::RolledBack(why) => (Some(GenerationOutcomeView::RolledBack), why),
    };
    GenerationView {
        generation,
        until: until.map(rfc3339),
        outcome,
        message,
        undo_target: false,
        on_disconnect,
        stop_grace_period,
        drain,
        stateful,
        resources,
        containers,
        images,
    }
}

pub(crate) fn pod(pod: PodRecord) -> PodView {
    PodView {
        uuid: pod.id,
        name: pod.name,
        phase: pod.phase,
        ready_since: pod.ready_since.map(rfc3339),
        reason: pod.reason,
        message: pod.message,
        service: pod.service,
        replica: pod.replica,
        generation: pod.generation,
        image: pod.image,
        node: pod.node,
        assignment: pod.assignment,
        attempts: pod.attempts,
        restarts: pod.restarts,
        exit_code: pod.exit_code,
        address: pod.address,
        ports: pod.published_ports,
        host_ports: pod.host_ports.split_whitespace().map(str::to_owned).collect(),
        resources: ids_by_name(&pod.resource_ids),
        images: pod.images,
        containers: pod.containers,
        runs: Vec::new(),
        cpu_millis: pod.request.cpu_millis,
        memory_bytes: pod.request.memory_bytes,
        pids: pod.request.pids,
        disk_bytes: pod.request.disk_bytes,
        created_at: rfc3339(pod.created_at),
        since: rfc3339(pod.since),
        refusals: Vec::new(),
    }
}

pub(crate) fn is_ready(node: &Node, now: RedisMillis, fresh: Duration) -> bool {
    node.state == NodeState::Alive && node.engine_problem.is_none() && !is_silent(node, now, fresh)
}

/// Older than `fresh` and than the node's own fence.
pub(crate) fn is_silent(node: &Node, now: RedisMillis, fresh: Duration) -> bool {
    let own = node.timing.map_or(Duration::ZERO, |times| times.fence_after);
    silence(node, now) > fresh.max(own)
}

pub(crate) fn silence(node: &Node, now: RedisMillis) -> Duration {
    Duration::from_millis(now.saturating_sub(node.beat))
}

pub(crate) fn node(node: Node, queues: NodeQueues, now: RedisMillis, fresh: Duration) -> NodeView {
    NodeView {
        ready: is_ready(&node, now, fresh),
        resources: named_resources(&node),
        name: node.name,
        kind: node.kind,
        state: node.state,
        cordoned: node.cordoned,
        drain: node.drain.as_ref().map(drain_order),
        fenceable: node.kind == NodeKind::Kubeleet,
        engine_problem: node.engine_problem,
        disk_problem: node.disk_problem,
        problems: node.problems,
        labels: node.facts.labels,
        runtime: node.facts.runtime,
        engine_version: node.facts.engine_version,
        engine_id: Some(node.facts.engine_id).filter(|id| !id.is_empty()),
        version: node.facts.version,
        capacity: node.facts.capacity,
        reserved: node.facts.reserved,
        used: node.used,
        host_ports: node.host_ports,
        shared_volumes: node.shared_volumes.map(|state| state.as_str().to_owned()),
        psi: node.psi,
        last_heartbeat: rfc3339(node.beat),
        registered_at: rfc3339(node.registered_at),
        created_at: rfc3339(node.created_at),
        queues: NodeQueuesView {
            pending: queues.pending,
            starting: queues.starting,
            running: queues.running,
        },
    }
}

fn ids_by_name(ids: &ResourceIds) -> BTreeMap<String, Vec<String>> {
    let texts = |ids: &[ResourceId]| ids.iter().map(ToString::to_string).collect();
    ids.iter().map(|(name, ids)| (name.to_string(), texts(ids))).collect()
}

/// With those that pods have although the node offers them no more.
fn named_resources(node: &Node) -> BTreeMap<String, NamedResourceView> {
    let mut views: BTreeMap<String, NamedResourceView> = ids_by_name(node.offered_ids())
        .into_iter()
        .map(|(name, ids)| (name, NamedResourceView { ids, used: BTreeMap::new() }))
        .collect();
    for (key, pod) in &node.given_ids {
        if let Some((name, id)) = key.split_once('/') {
            views.entry(name.to_owned()).or_default().used.insert(id.to_owned(), pod.clone());
        }
    }
    views
}

pub(crate) fn drain_order(drain: &Drain) -> DrainOrderView {
    DrainOrderView { since: rfc3339(drain.at), deadline: drain.deadline.map(rfc3339) }
}

pub(crate) fn queues_of(node: NodeName, queues: NodeQueues) -> QueuesOfNode {
    let NodeQueues { pending, starting, running } = queues;
    QueuesOfNode { node, pending, starting, running }
}

/// In base64 if it is not UTF-8.
pub(crate) fn item(payload: PeekedPayload) -> QueueItem {
    let bytes = (payload.length > payload.bytes.len()).then_some(payload.length as u64);
    let (payload, encoding) = text_or_base64(payload.bytes);
    QueueItem { payload, encoding, bytes, reason: None }
}

fn text_or_base64(payload: Vec<u8>) -> (String, Option<String>) {
    match String::from_utf8(payload) {
        Ok(text) => (text, None),
        Err(bytes) => (STANDARD.encode(bytes.as_bytes()), Some("base64".to_owned())),
    }
}

pub(crate) fn unschedulable(pod: UnschedulablePod) -> QueueItem {
    QueueItem { reason: pod.reason, ..item(pod.payload) }
}

pub(crate) fn dead_letter(dead_letter: DeadLetter) -> DeadLetterView {
    let (payload, encoding) = text_or_base64(dead_letter.payload);
    DeadLetterView {
        id: dead_letter.id,
        queue: dead_letter.queue,
        payload,
        encoding,
        reason: dead_letter.reason,
        at: rfc3339(dead_letter.at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_keeps_its_bytes() {
        let whole = |bytes: &[u8]| item(PeekedPayload { bytes: bytes.to_vec(), length: bytes.len() });
        let plain = whole(b"{\"name\":\"x\"}");
        assert_eq!((plain.payload.as_str(), plain.encoding), ("{\"name\":\"x\"}", None));
        let binary = whole(&[0xff, 0xfe]);
        assert_eq!((binary.payload.as_str(), binary.encoding.as_deref()), ("//4=", Some("base64")));
        assert_eq!(binary.bytes, None);
        assert_eq!(item(PeekedPayload { bytes: b"x".to_vec(), length: 600_000 }).bytes, Some(600_000));
    }
}
