//! Whether this process lives, whether it can serve, and its numbers.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use crate::dto::{Problem, ReadyView};
use crate::metrics as gauges;
use crate::overview::{self, Overview};
use crate::problem::{ApiProblem, Kind};
use crate::state::App;

/// Whoever asks whether this process is ready does not wait for long.
const READY_WITHIN: Duration = Duration::from_secs(2);

/// Whether the process lives.
#[utoipa::path(get, path = "/healthz", tag = "process", responses((status = 200, description = "It lives", body = String)))]
pub(crate) async fn alive() -> &'static str {
    "ok\n"
}

/// Whether the process can serve: whether Redis answers. What else is wrong comes as warnings.
#[utoipa::path(get, path = "/readyz", tag = "process", responses(
    (status = 200, body = ReadyView),
    (status = 503, description = "Which part is not ready", body = Problem),
))]
pub(crate) async fn ready(State(app): State<App>) -> Result<Json<ReadyView>, ApiProblem> {
    let asked = async {
        app.store.ping().await?;
        overview::living_schedulers(&app).await
    };
    let away = |why: String| {
        let detail = format!("redis: {why}");
        ApiProblem::new(Kind::RedisUnavailable, detail).at("/redis", why)
    };
    let schedulers = match tokio::time::timeout(READY_WITHIN, asked).await {
        Ok(Ok(schedulers)) => schedulers,
        Ok(Err(error)) => return Err(away(error.to_string())),
        Err(_) => {
            let why = overview::link(&app).err().filter(|why| !why.is_empty());
            return Err(away(
                why.unwrap_or_else(|| format!("no answer within {} s", READY_WITHIN.as_secs())),
            ));
        }
    };
    let mut warnings = Vec::new();
    if schedulers == 0 {
        warnings.push("scheduler: none is alive, so nothing new is placed".to_owned());
    }
    Ok(Json(ReadyView { ready: true, warnings }))
}

/// The process' own numbers, and the cluster's as of now.
#[utoipa::path(get, path = "/metrics", tag = "process", responses(
    (status = 200, description = "Prometheus' text form", body = String, content_type = "text/plain"),
))]
pub(crate) async fn metrics(State(app): State<App>) -> Response {
    match Overview::read(&app).await {
        Ok(overview) => {
            gauges::set_one("kubeleet_redis_up", 1);
            refresh(&overview, app.config.timing.fence_after);
        }
        Err(error) => {
            // The numbers of the process itself are worth having above all when something is wrong.
            tracing::debug!(%error, "no numbers of the cluster");
            gauges::set_one("kubeleet_redis_up", 0);
        }
    }
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], app.metrics.render()).into_response()
}

fn refresh(overview: &Overview, fresh: Duration) {
    for (phase, count) in &overview.pods {
        gauges::set("kubeleet_pods", "phase", phase.as_str().to_owned(), *count);
    }
    let nodes = overview.node_counts(fresh);
    for (state, count) in
        [("total", nodes.total), ("ready", nodes.ready), ("cordoned", nodes.cordoned), ("dead", nodes.dead)]
    {
        gauges::set("kubeleet_nodes", "state", state.to_owned(), count);
    }
    let of_nodes = &overview.node_queues;
    let own = &overview.queues;
    for (queue, length) in [
        ("waiting", own.waiting),
        ("in_flight", own.in_flight),
        ("unschedulable", own.unschedulable),
        ("dead", own.dead),
        ("pending", of_nodes.iter().map(|queues| queues.pending).sum()),
        ("starting", of_nodes.iter().map(|queues| queues.starting).sum()),
        ("running", of_nodes.iter().map(|queues| queues.running).sum()),
    ] {
        gauges::set("kubeleet_queue_length", "queue", queue.to_owned(), length);
    }
    gauges::set_one("kubeleet_services", overview.services);
    gauges::set_one("kubeleet_services_unconfirmed", overview.unconfirmed_writes);
    gauges::set_one("kubeleet_schedulers", overview.schedulers);
}
