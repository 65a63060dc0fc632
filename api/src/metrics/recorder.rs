//! Metrics of this process in the Prometheus text format.

use std::sync::OnceLock;
use std::time::Duration;

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use model::pod::lifecycle::Phase;
use store::{CAUSES, RedisMemory};
use tokio_util::sync::CancellationToken;

use crate::cluster::redis_watch::{OTHER_CAUSE, RedisCondition};

const REQUESTS: &str = "kubeleet_http_requests_total";
const REQUEST_SECONDS: &str = "kubeleet_http_request_duration_seconds";
const REDIS_UP: &str = "kubeleet_redis_up";
const REDIS_WRITABLE: &str = "kubeleet_redis_writable";
const REDIS_REFUSAL: &str = "kubeleet_redis_refusal";
const REDIS_REPLICAS: &str = "kubeleet_redis_replicas";
const SENTINELS: &str = "kubeleet_redis_sentinels";
const CAN_FAIL_OVER: &str = "kubeleet_redis_can_fail_over";
const PAUSE_SECONDS: &str = "kubeleet_pause_remaining_seconds";
const PROBLEMS: &str = "kubeleet_problems";
const PROXIES: &str = "kubeleet_proxies";
const NODES_HOLDING: &str = "kubeleet_nodes_holding";
const CONTAINERS_HELD: &str = "kubeleet_containers_held";
const PODS: &str = "kubeleet_pods";
const NODES: &str = "kubeleet_nodes";
const NODES_CORDONED: &str = "kubeleet_nodes_cordoned";
const SERVICES: &str = "kubeleet_services";
const SERVICES_UNCONFIRMED: &str = "kubeleet_services_unconfirmed";
const REDIS_MEMORY_USED: &str = "kubeleet_redis_memory_used_bytes";
const REDIS_MEMORY_LIMIT: &str = "kubeleet_redis_memory_limit_bytes";
const REDIS_MEMORY_HEADROOM: &str = "kubeleet_redis_memory_headroom_bytes";
const SCHEDULERS: &str = "kubeleet_schedulers";
const BROKEN_KEYS: &str = "kubeleet_broken_keys";
const QUEUE_LENGTH: &str = "kubeleet_queue_length";

const SECONDS_SUFFIX: &str = "_seconds";
const SECONDS_BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Earlier metrics are lost.
pub(crate) fn recorder() -> PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(install).clone()
}

fn install() -> PrometheusHandle {
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix(SECONDS_SUFFIX.to_owned()), SECONDS_BUCKETS)
        .expect("the buckets are not empty");
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    if metrics::set_global_recorder(recorder).is_err() {
        tracing::warn!("another recorder of metrics is installed in this process: /metrics stays empty");
    }
    describe_metrics();
    handle
}

/// Every API process reports the same cluster gauges: take the maximum over processes, never the sum.
fn describe_metrics() {
    describe_counter!(REQUESTS, "HTTP requests by method, route and status");
    describe_histogram!(REQUEST_SECONDS, Unit::Seconds, "Time until the response began");
    describe_gauge!(REDIS_UP, "1 if Redis answers this process");
    describe_gauge!(REDIS_WRITABLE, "1 if Redis takes the writes of this process");
    describe_gauge!(REDIS_REFUSAL, "1 for the cause for which Redis takes no writes, by cause; else 0");
    describe_gauge!(REDIS_REPLICAS, "Replicas of Redis: expected, and attached and keeping up");
    describe_gauge!(SENTINELS, "Sentinels: known, and answering this process");
    describe_gauge!(CAN_FAIL_OVER, "1 if the Sentinels could replace the master now; NaN without Sentinels");
    describe_gauge!(
        PAUSE_SECONDS,
        Unit::Seconds,
        "Time for which no node is declared dead any more because the master of Redis changed"
    );
    describe_gauge!(PROBLEMS, "Problems that kubeleet status shows");
    describe_gauge!(PROXIES, "Proxies of nodes by state: alive, or away after this API saw them");
    describe_gauge!(NODES_HOLDING, "Nodes that leave containers alone which this Redis does not know");
    describe_gauge!(
        CONTAINERS_HELD,
        "Containers that nodes leave alone because this Redis does not know them"
    );
    describe_gauge!(PODS, "Pods of the cluster by phase");
    describe_gauge!(NODES, "Nodes of the cluster by state: ready, not_ready or dead");
    describe_gauge!(NODES_CORDONED, "Nodes of the cluster that take no new pods; they also count by state");
    describe_gauge!(SERVICES, "Services of the cluster");
    describe_gauge!(
        SERVICES_UNCONFIRMED,
        "Services with a write that not all replicas of Redis have confirmed within 10 s"
    );
    describe_gauge!(REDIS_MEMORY_USED, Unit::Bytes, "Memory that Redis uses");
    describe_gauge!(REDIS_MEMORY_LIMIT, Unit::Bytes, "maxmemory of Redis; 0 without a limit");
    describe_gauge!(
        REDIS_MEMORY_HEADROOM,
        Unit::Bytes,
        "Memory that can be added before the API refuses what adds; +Inf without a limit"
    );
    describe_gauge!(BROKEN_KEYS, "Keys in Redis that cannot be read; GET /status names them");
    describe_gauge!(SCHEDULERS, "Schedulers of the cluster that are alive");
    describe_gauge!(QUEUE_LENGTH, "Payloads by queue, summed over all nodes");
}

pub(crate) fn count_request(method: &'static str, route: String, status: u16, took: Duration) {
    counter!(REQUESTS, "method" => method, "route" => route.clone(), "status" => status.to_string())
        .increment(1);
    histogram!(REQUEST_SECONDS, "method" => method, "route" => route).record(took.as_secs_f64());
}

/// Known even while Redis is unavailable.
pub(crate) fn set_redis_gauges(condition: &RedisCondition) {
    let flag = |is_set: bool| if is_set { 1.0 } else { 0.0 };
    let refusal = condition.outage.as_ref().map(|outage| outage.cause);
    gauge!(REDIS_WRITABLE).set(flag(refusal.is_none()));
    for cause in CAUSES.into_iter().chain([OTHER_CAUSE]) {
        gauge!(REDIS_REFUSAL, "cause" => cause).set(flag(refusal == Some(cause)));
    }
    let redundancy = &condition.redundancy;
    let counts = [
        (REDIS_REPLICAS, "expected", redundancy.expected.len()),
        (REDIS_REPLICAS, "attached", redundancy.attached.len()),
        (SENTINELS, "known", redundancy.sentinels),
        (SENTINELS, "answering", redundancy.sentinels_answering),
    ];
    for (family, state, count) in counts {
        gauge!(family, "state" => state).set(count as f64);
    }
    gauge!(CAN_FAIL_OVER).set(redundancy.can_fail_over.map_or(f64::NAN, flag));
}

pub(crate) struct ClusterGauges {
    /// Running pods that are not ready count as `not_ready` instead.
    pub(crate) pods: Vec<(&'static str, u64)>,
    pub(crate) nodes: [(&'static str, u64); 3],
    pub(crate) nodes_cordoned: u64,
    pub(crate) queues: QueuedPods,
    pub(crate) services: u64,
    pub(crate) services_unconfirmed: u64,
    pub(crate) schedulers: u64,
    pub(crate) redis_memory: RedisMemory,
    /// `None` if Redis has no limit.
    pub(crate) redis_headroom: Option<u64>,
    pub(crate) broken_keys: u64,
    pub(crate) problems: u64,
    /// In which no node is declared dead.
    pub(crate) pause_seconds: u64,
    pub(crate) proxies: [(&'static str, u64); 2],
    /// Nodes, and their containers.
    pub(crate) held: (u64, u64),
}

pub(crate) const NOT_READY: &str = "not_ready";
pub(crate) const NODE_STATES: [&str; 3] = ["ready", "not_ready", "dead"];
pub(crate) const PROXY_STATES: [&str; 2] = ["alive", "away"];

/// In the schedulers' queues, then in those of all nodes together.
#[derive(Default)]
pub(crate) struct QueuedPods {
    pub(crate) waiting: u64,
    pub(crate) in_flight: u64,
    pub(crate) unschedulable: u64,
    pub(crate) dead: u64,
    pub(crate) pending: u64,
    pub(crate) starting: u64,
    pub(crate) running: u64,
}

impl QueuedPods {
    fn by_queue(&self) -> [(&'static str, u64); 7] {
        [
            ("waiting", self.waiting),
            ("in_flight", self.in_flight),
            ("unschedulable", self.unschedulable),
            ("dead", self.dead),
            ("pending", self.pending),
            ("starting", self.starting),
            ("running", self.running),
        ]
    }
}

impl ClusterGauges {
    fn zero() -> Self {
        Self {
            pods: Phase::ALL.into_iter().map(|phase| (phase.as_str(), 0)).chain([(NOT_READY, 0)]).collect(),
            nodes: NODE_STATES.map(|state| (state, 0)),
            nodes_cordoned: 0,
            queues: QueuedPods::default(),
            services: 0,
            services_unconfirmed: 0,
            schedulers: 0,
            broken_keys: 0,
            problems: 0,
            pause_seconds: 0,
            proxies: PROXY_STATES.map(|state| (state, 0)),
            held: (0, 0),
            redis_memory: RedisMemory::default(),
            redis_headroom: None,
        }
    }
}

/// Without values Redis is down, and all others are NaN: an old value would look like a healthy cluster.
pub(crate) fn set_cluster_gauges(values: Option<ClusterGauges>) {
    let is_known = values.is_some();
    gauge!(REDIS_UP).set(if is_known { 1.0 } else { 0.0 });
    let values = values.unwrap_or_else(ClusterGauges::zero);
    let set = |gauge: metrics::Gauge, value: u64| gauge.set(if is_known { value as f64 } else { f64::NAN });
    let set_family = |family: &'static str, label: &'static str, counts: &[(&'static str, u64)]| {
        for (value, count) in counts {
            set(gauge!(family, label => *value), *count);
        }
    };
    set_family(PODS, "phase", &values.pods);
    set_family(NODES, "state", &values.nodes);
    set_family(PROXIES, "state", &values.proxies);
    set_family(QUEUE_LENGTH, "queue", &values.queues.by_queue());
    set(gauge!(NODES_CORDONED), values.nodes_cordoned);
    set(gauge!(SERVICES), values.services);
    set(gauge!(SERVICES_UNCONFIRMED), values.services_unconfirmed);
    set(gauge!(SCHEDULERS), values.schedulers);
    set(gauge!(BROKEN_KEYS), values.broken_keys);
    set(gauge!(PROBLEMS), values.problems);
    set(gauge!(PAUSE_SECONDS), values.pause_seconds);
    set(gauge!(NODES_HOLDING), values.held.0);
    set(gauge!(CONTAINERS_HELD), values.held.1);
    set(gauge!(REDIS_MEMORY_USED), values.redis_memory.used);
    set(gauge!(REDIS_MEMORY_LIMIT), values.redis_memory.limit.unwrap_or(0));
    let headroom = values.redis_headroom.map_or(f64::INFINITY, |bytes| bytes as f64);
    gauge!(REDIS_MEMORY_HEADROOM).set(if is_known { headroom } else { f64::NAN });
}

pub(crate) fn render(recorder: &PrometheusHandle) -> impl IntoResponse + use<> {
    ([(CONTENT_TYPE, TEXT_FORMAT)], recorder.render())
}

/// Without this, histograms grow.
pub(crate) async fn upkeep(recorder: PrometheusHandle, shutdown: CancellationToken) {
    let compact = async {
        loop {
            tokio::time::sleep(UPKEEP_INTERVAL).await;
            recorder.run_upkeep();
        }
    };
    shutdown.run_until_cancelled(compact).await;
}
