//! Objects for tests, as the API sends them.

use api_types::{NodeView, PodView, ServiceView};
use model::pod::lifecycle::Phase;
use serde_json::json;

/// With three running pods of nginx, created a minute after midnight.
pub fn service(name: &str) -> ServiceView {
    serde_json::from_value(json!({
        "name": name, "state": "active", "generation": 1, "replicas": 3, "labels": {"tier": "front"},
        "on_disconnect": "keep", "stop_grace_period": 10,
        "containers": [{
            "image": "nginx:1.27", "environment": {"PASSWORD": "hunter2"}, "ports": ["8080:80"],
            "memory": "64MiB"
        }],
        "created_at": "2026-01-31T00:01:00Z", "updated_at": "2026-01-31T00:01:00Z",
        "status": {
            "desired": 3, "pending": 0, "assigned": 0, "running": 3, "stopping": 0, "succeeded": 0,
            "failed": 0, "updated": 3, "unschedulable": 0, "message": ""
        }
    }))
    .unwrap()
}

/// The first of `web`.
pub fn pod(uuid: &str, phase: Phase) -> PodView {
    serde_json::from_value(json!({
        "uuid": uuid, "name": "web", "phase": phase, "reason": "", "message": "", "service": "web",
        "replica": 0, "generation": 1, "image": "nginx:1.27", "node": "worker1", "assignment": "a1",
        "attempts": 1, "restarts": 0, "exit_code": null,
        "address": "172.17.0.2", "cpu_millis": 0, "memory_bytes": 67108864,
        "created_at": "2026-01-31T00:01:00Z", "since": "2026-01-31T00:01:01Z"
    }))
    .unwrap()
}

/// A ready one.
pub fn node(name: &str) -> NodeView {
    serde_json::from_value(json!({
        "name": name, "kind": "kubeleet", "state": "alive", "ready": true, "cordoned": false,
        "fenceable": true, "engine_problem": null,
        "labels": {"zone": "a"}, "runtime": "docker", "engine_version": "20.10", "engine_id": "A1B2",
        "version": "0.1.0",
        "capacity": {"cpu_millis": 2000, "memory_bytes": 2147483648u64, "pids": 0, "disk_bytes": 0, "pods": 250},
        "used": {"cpu_millis": 500, "memory_bytes": 67108864, "pids": 0, "disk_bytes": 0, "pods": 3},
        "psi": {"cpu_some": 1.0, "memory_some": 0.0, "memory_full": 0.0, "io_some": 12.4, "io_full": 0.0},
        "last_heartbeat": "2026-01-31T00:05:58Z", "registered_at": "2026-01-31T00:00:00Z",
        "created_at": "2026-01-31T00:00:00Z",
        "queues": {"pending": 0, "starting": 1, "running": 2}
    }))
    .unwrap()
}
