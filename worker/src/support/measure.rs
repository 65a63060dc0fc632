//! The worker's metrics, each counted where it happens.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use model::ids::NodeName;
use model::node::usage::Usage;

const STARTS: &str = "kubeleet_pod_starts_total";
const START_SECONDS: &str = "kubeleet_pod_start_seconds";
const HEARTBEAT_SECONDS: &str = "kubeleet_heartbeat_seconds";
const HEARTBEATS: &str = "kubeleet_worker_heartbeats_total";
const RESTARTS: &str = "kubeleet_worker_restarts_total";
const STOPS: &str = "kubeleet_worker_stops_total";
const FENCED: &str = "kubeleet_worker_fenced_total";
const POD_CPU: &str = "kubeleet_pod_cpu_cores";
const POD_MEMORY: &str = "kubeleet_pod_memory_bytes";
const POD_READ: &str = "kubeleet_pod_read_bytes_per_second";
const POD_WRITTEN: &str = "kubeleet_pod_written_bytes_per_second";
const PODS: &str = "kubeleet_worker_pods";

pub(crate) fn describe() {
    describe_counter!(
        STARTS,
        Unit::Count,
        "Starts of pods by result: ok; image, failed, engine, files, volumes, dependencies: retried; \
         node: counted too if the node is at fault; refused, rejected: not retried"
    );
    describe_histogram!(
        START_SECONDS,
        Unit::Seconds,
        "Time to start a pod: pull its image and run its container"
    );
    describe_counter!(HEARTBEATS, Unit::Count, "Heartbeats by result: ok, failed, fenced");
    describe_histogram!(HEARTBEAT_SECONDS, Unit::Seconds, "Time until Redis answered a heartbeat");
    describe_counter!(RESTARTS, Unit::Count, "Containers started again after they had exited");
    describe_counter!(
        STOPS,
        Unit::Count,
        "Containers stopped, by reason: requested, not_assigned, fenced, ended, unhealthy"
    );
    describe_counter!(
        FENCED,
        Unit::Count,
        "Times the lease expired and `on_disconnect: stop` pods were stopped"
    );
    describe_gauge!(PODS, Unit::Count, "Pods managed by the worker of a node");
    describe_gauge!(POD_CPU, "Cores that a pod uses, on average over 15 s; NaN once it is gone");
    describe_gauge!(POD_MEMORY, Unit::Bytes, "Working set of a pod");
    describe_gauge!(POD_READ, "Bytes that a pod reads from block devices in a second");
    describe_gauge!(POD_WRITTEN, "Bytes that a pod writes to block devices in a second");
    daemon::control_loop::describe_metrics();
}

pub(crate) fn start(result: &'static str) {
    counter!(STARTS, "result" => result).increment(1);
}

pub(crate) fn start_took(duration: Duration) {
    histogram!(START_SECONDS).record(duration.as_secs_f64());
}

pub(crate) fn heartbeat(result: &'static str) {
    counter!(HEARTBEATS, "result" => result).increment(1);
}

pub(crate) fn heartbeat_took(duration: Duration) {
    histogram!(HEARTBEAT_SECONDS).record(duration.as_secs_f64());
}

pub(crate) fn restart() {
    counter!(RESTARTS).increment(1);
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum ContainerStopReason {
    Requested,
    NotAssigned,
    Fenced,
    Ended,
    Unhealthy,
}

pub(crate) fn stop(reason: ContainerStopReason) {
    let reason = match reason {
        ContainerStopReason::Requested => "requested",
        ContainerStopReason::NotAssigned => "not_assigned",
        ContainerStopReason::Fenced => "fenced",
        ContainerStopReason::Ended => "ended",
        ContainerStopReason::Unhealthy => "unhealthy",
    };
    counter!(STOPS, "reason" => reason).increment(1);
}

pub(crate) fn fenced() {
    counter!(FENCED).increment(1);
}

pub(crate) fn managed_pods(node: &NodeName, count: usize) {
    gauge!(PODS, "node" => node.to_string()).set(count as f64);
}

/// Pods are named by service and index, which successors share: their number stays bounded. NaN for unknown
/// values.
pub(crate) fn pod_uses(node: &NodeName, pod: &str, usage: &Usage) {
    let value = |amount: Option<u64>, unit: f64| amount.map_or(f64::NAN, |amount| amount as f64 / unit);
    for (name, value) in [
        (POD_CPU, value(usage.cpu_millis, 1000.0)),
        (POD_MEMORY, value(usage.memory_bytes, 1.0)),
        (POD_READ, value(usage.read_bytes_per_second, 1.0)),
        (POD_WRITTEN, value(usage.write_bytes_per_second, 1.0)),
    ] {
        gauge!(name, "node" => node.to_string(), "pod" => pod.to_owned()).set(value);
    }
}
