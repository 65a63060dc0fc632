//! Metrics of this process, in Prometheus' text form.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{counter, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

const REQUESTS: &str = "kubeleet_http_requests_total";
const SECONDS: &str = "kubeleet_http_request_duration_seconds";
const BUCKETS: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// The one recorder of this process; everybody's `metrics::counter!` ends here.
pub(crate) fn handle() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE.get_or_init(install).clone()
}

fn install() -> PrometheusHandle {
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(SECONDS.to_owned()), BUCKETS)
        .expect("the buckets are not empty");
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    if metrics::set_global_recorder(recorder).is_err() {
        tracing::warn!("this process records its metrics elsewhere: /metrics stays empty");
    }
    metrics::describe_counter!(REQUESTS, "HTTP requests by method, route and status");
    metrics::describe_histogram!(SECONDS, "Time until an answer began, in seconds");
    metrics::describe_gauge!("kubeleet_redis_up", "1 when Redis answers");
    metrics::describe_gauge!("kubeleet_pods", "Pods of the cluster by phase");
    metrics::describe_gauge!("kubeleet_nodes", "Nodes of the cluster by state");
    metrics::describe_gauge!("kubeleet_services", "Services of the cluster");
    metrics::describe_gauge!(
        "kubeleet_services_unconfirmed",
        "Services with a write that not all replicas of Redis have confirmed"
    );
    metrics::describe_gauge!("kubeleet_queue_length", "Payloads in the queues, summed over nodes");
    handle
}

/// One request was answered.
pub(crate) fn count_request(method: &'static str, route: String, status: u16, took: Duration) {
    counter!(REQUESTS, "method" => method, "route" => route.clone(), "status" => status.to_string())
        .increment(1);
    histogram!(SECONDS, "method" => method, "route" => route).record(took.as_secs_f64());
}

/// Sets one gauge of a family to what was just read.
pub(crate) fn set(family: &'static str, label: &'static str, value: String, number: u64) {
    gauge!(family, label => value).set(number as f64);
}

/// Sets a gauge without labels.
pub(crate) fn set_one(name: &'static str, number: u64) {
    gauge!(name).set(number as f64);
}
