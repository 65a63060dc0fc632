//! From the words of the domain to the shapes of the API. Pure.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use common::RedisMillis;
use common::node::{Node, NodeKind, NodeState};
use common::pod::PodRecord;
use common::service::Service;
use common::store::{Letter, NodeQueues};

use crate::dto::{
    LetterView, NodeQueuesView, NodeView, PodView, QueueItem, QueuesOfNode, ServiceStatus, ServiceView,
    rfc3339,
};

/// A service with its status.
pub(crate) fn service(service: Service, status: ServiceStatus) -> ServiceView {
    ServiceView {
        name: service.name,
        state: service.state,
        generation: service.generation,
        replicas: service.replicas,
        labels: service.labels,
        on_disconnect: service.pod.on_disconnect,
        stop_grace_period: service.pod.stop_grace_period,
        containers: service.pod.containers,
        created_at: rfc3339(service.created_at),
        updated_at: rfc3339(service.updated_at),
        status,
        durability: None,
    }
}

/// A pod, without its refusals.
pub(crate) fn pod(pod: PodRecord) -> PodView {
    PodView {
        uuid: pod.id,
        name: pod.name,
        phase: pod.phase,
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
        cpu_millis: pod.cpu_millis,
        memory_bytes: pod.memory_bytes,
        created_at: rfc3339(pod.created_at),
        since: rfc3339(pod.since),
        refusals: Vec::new(),
    }
}

/// Whether a node does what nodes do: alive, heard of within `fresh`, with a well engine.
pub(crate) fn is_ready(node: &Node, now: RedisMillis, fresh: Duration) -> bool {
    node.state == NodeState::Alive && node.engine_problem.is_none() && silence(node, now) <= fresh
}

/// How long a node has been silent.
pub(crate) fn silence(node: &Node, now: RedisMillis) -> Duration {
    Duration::from_millis(now.saturating_sub(node.beat))
}

/// A node with the lengths of its queues.
pub(crate) fn node(node: Node, queues: NodeQueues, now: RedisMillis, fresh: Duration) -> NodeView {
    NodeView {
        ready: is_ready(&node, now, fresh),
        name: node.name,
        kind: node.kind,
        state: node.state,
        cordoned: node.cordoned,
        fenceable: node.kind == NodeKind::Kubeleet,
        engine_problem: node.engine_problem,
        labels: node.facts.labels,
        runtime: node.facts.runtime,
        engine_version: node.facts.engine_version,
        version: node.facts.version,
        capacity: node.facts.capacity,
        used: node.used,
        psi: node.psi,
        last_heartbeat: rfc3339(node.beat),
        registered_at: rfc3339(node.registered_at),
        queues: NodeQueuesView {
            pending: queues.pending,
            starting: queues.starting,
            running: queues.running,
        },
    }
}

/// The lengths of a node's queues, with its name.
pub(crate) fn queues_of(node: common::ids::NodeName, queues: NodeQueues) -> QueuesOfNode {
    let NodeQueues { pending, starting, running } = queues;
    QueuesOfNode { node, pending, starting, running }
}

/// A payload, byte for byte.
pub(crate) fn item(payload: Vec<u8>) -> QueueItem {
    match String::from_utf8(payload) {
        Ok(payload) => QueueItem { payload, encoding: None },
        Err(bytes) => {
            let payload = STANDARD.encode(bytes.as_bytes());
            QueueItem { payload, encoding: Some("base64".to_owned()) }
        }
    }
}

/// A dead letter.
pub(crate) fn letter(letter: Letter) -> LetterView {
    let QueueItem { payload, encoding } = item(letter.payload);
    LetterView {
        id: letter.id,
        queue: letter.queue,
        payload,
        encoding,
        reason: letter.reason,
        at: rfc3339(letter.at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_keep_their_bytes() {
        let plain = item(b"{\"name\":\"x\"}".to_vec());
        assert_eq!((plain.payload.as_str(), plain.encoding), ("{\"name\":\"x\"}", None));
        let binary = item(vec![0xff, 0xfe]);
        assert_eq!((binary.payload.as_str(), binary.encoding.as_deref()), ("//4=", Some("base64")));
    }
}
