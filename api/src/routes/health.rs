//! Liveness, readiness and metrics.

use api_types::{Problem, ReadyView};
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use daemon::config::Config;
use model::pod::lifecycle::Phase;

use crate::admission::growth;
use crate::cluster::overview::Overview;
use crate::cluster::readiness;
use crate::cluster::redis_watch::RedisCondition;
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::metrics::{self, ClusterGauges, NODE_STATES, NOT_READY, PROXY_STATES, QueuedPods};
use crate::routes::status;
use crate::state::AppState;

/// Answers while the process runs.
#[utoipa::path(get, path = "/healthz", tag = "process", responses(
    (status = 200, description = "The process runs", body = String, content_type = "text/plain"),
))]
pub(crate) async fn get_health() -> &'static str {
    "ok\n"
}

/// Says whether this process can serve, which is whether Redis takes its writes.
///
/// Other faults of the cluster are warnings. Without the token of the API the answer has neither warnings nor
/// causes.
#[utoipa::path(get, path = "/readyz", tag = "process", responses(
    (status = 200, description = "This process can serve", body = ReadyView),
    (status = 503, description = "Redis takes no writes; `errors` says why", body = Problem),
))]
pub(crate) async fn get_readiness(
    State(app): State<AppState>,
    headers: HeaderMap,
) -> Result<Json<ReadyView>, ApiProblem> {
    // A probe need not have the token: then it learns no addresses or errors.
    let is_trusted = app.access.is_trusted(&headers);
    let unavailable = |why: String| {
        if !is_trusted {
            let detail = "Redis is unavailable; with the token of the API the answer says why";
            return ApiProblem::new(ProblemKind::RedisUnavailable, detail);
        }
        ApiProblem::new(ProblemKind::RedisUnavailable, why.clone()).at("/redis", why)
    };
    let schedulers = readiness::latest(&app).await.map_err(unavailable)?;
    let mut warnings = Vec::new();
    if schedulers == 0 && is_trusted {
        warnings.push("scheduler: none is alive, so no pod is placed; start `kubeleet scheduler`".to_owned());
    }
    Ok(Json(ReadyView { ready: true, warnings }))
}

/// Returns the metrics of this process, and gauges of the whole cluster.
#[utoipa::path(get, path = "/metrics", tag = "process", responses(
    (status = 200, description = "Prometheus text format", body = String, content_type = "text/plain"),
))]
pub(crate) async fn get_metrics(State(app): State<AppState>) -> Response {
    let (overview, condition) = tokio::join!(Overview::read(&app), app.redis_watch.condition());
    metrics::set_redis_gauges(&condition);
    let gauges = match overview {
        Ok(overview) => Some(cluster_gauges(&overview, &condition, &app.config)),
        Err(error) => {
            // This process's own metrics matter most during failures.
            tracing::debug!(%error, "the gauges of the cluster are unknown");
            None
        }
    };
    metrics::set_cluster_gauges(gauges);
    metrics::render(&app.metrics).into_response()
}

/// A pod that runs and is not ready counts once, as not ready.
fn pods_by_phase(overview: &Overview) -> Vec<(&'static str, u64)> {
    let not_ready = overview.pods_not_ready;
    let counts = overview.pods.iter().map(|(phase, count)| match phase {
        Phase::Running => (phase.as_str(), count.saturating_sub(not_ready)),
        _ => (phase.as_str(), *count),
    });
    counts.chain([(NOT_READY, not_ready)]).collect()
}

fn cluster_gauges(overview: &Overview, condition: &RedisCondition, config: &Config) -> ClusterGauges {
    let pause = status::pause(overview.master_changed_at, overview.now, config);
    let held = overview.held.iter().map(|held| held.containers).sum();
    let (nodes, limits) = (overview.node_counts(config.timing.fence_after), config.growth);
    let (of_nodes, own) = (&overview.node_queues, &overview.queues);
    ClusterGauges {
        pods: pods_by_phase(overview),
        nodes: label(
            NODE_STATES,
            [nodes.ready, nodes.total.saturating_sub(nodes.ready + nodes.dead), nodes.dead],
        ),
        nodes_cordoned: nodes.cordoned,
        queues: QueuedPods {
            waiting: own.waiting,
            in_flight: own.in_flight,
            unschedulable: own.unschedulable,
            dead: own.dead,
            pending: of_nodes.iter().map(|queues| queues.pending).sum(),
            starting: of_nodes.iter().map(|queues| queues.starting).sum(),
            running: of_nodes.iter().map(|queues| queues.running).sum(),
        },
        services: overview.services,
        services_unconfirmed: overview.lasting_unconfirmed_writes,
        schedulers: overview.schedulers,
        redis_memory: overview.memory,
        redis_headroom: growth::headroom(overview.memory, &limits),
        broken_keys: overview.broken.total,
        problems: status::all_problems(overview, condition, config).len() as u64,
        pause_seconds: pause.map_or(0, |pause| pause.no_deaths_for_seconds),
        proxies: label(
            PROXY_STATES,
            [overview.proxies.alive.len() as u64, overview.proxies.away.len() as u64],
        ),
        held: (overview.held.len() as u64, held),
    }
}

fn label<const N: usize>(labels: [&'static str; N], counts: [u64; N]) -> [(&'static str, u64); N] {
    std::array::from_fn(|i| (labels[i], counts[i]))
}
