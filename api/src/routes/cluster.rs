//! `/cluster`: checks and repairs the keys in Redis, and recovers lost state. Backups are in `backup.rs`.

use std::time::Duration;

use api_types::{FindingView, List, RecoveryView};
use axum::Json;
use axum::extract::State;
use model::ids::ClusterId;
use serde::Deserialize;
use store::Finding;
use utoipa::IntoParams;

use crate::cluster::recovery;
use crate::http::params::Params;
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;

/// Compares all keys in Redis with each other. Keys that change meanwhile may look wrong.
#[utoipa::path(get, path = "/cluster/check", tag = "cluster", responses(
    (status = 200, description = "The findings, by key", body = List<FindingView>),
))]
pub(crate) async fn check_cluster(
    State(app): State<AppState>,
) -> Result<Json<List<FindingView>>, ApiProblem> {
    let findings = app.store.check().await?;
    let items = findings.into_iter().map(|finding| view(finding, false)).collect();
    Ok(Json(List { items, next: None }))
}

/// Repairs the findings of `/cluster/check`, as far as possible.
#[utoipa::path(post, path = "/cluster/repair", tag = "cluster", responses(
    (status = 200, description = "The findings, and whether they were repaired", body = List<FindingView>),
))]
pub(crate) async fn repair_cluster(
    State(app): State<AppState>,
) -> Result<Json<List<FindingView>>, ApiProblem> {
    let mut items = Vec::new();
    for finding in app.store.check().await? {
        let repaired = match app.store.repair(&finding).await {
            Err(error) if error.is_transient() => return Err(error.into()),
            // This key cannot be repaired: it stays, the next check reports it, and the others are repaired.
            Err(_) => false,
            Ok(repaired) => repaired,
        };
        items.push(view(finding, repaired));
    }
    Ok(Json(List { items, next: None }))
}

const DEFAULT_WAIT_SECONDS: u32 = 15;
/// After it, 10 s are left to carry out the plan before a request ends (`REQUEST_TIMEOUT`, 30 s).
const MAX_WAIT_SECONDS: u32 = 20;

/// Options of a recovery.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RecoveryOptions {
    /// Whether the plan is carried out. Otherwise nothing is changed.
    #[param(default = false)]
    apply: Option<bool>,
    /// How many seconds to wait for the workers, at most 20.
    #[param(minimum = 0, maximum = 20, default = 15)]
    wait_seconds: Option<u32>,
    /// Id of the cluster, if workers of several clusters use this Redis.
    #[param(value_type = Option<String>, min_length = 1, max_length = 64, pattern = "^[!-~]+$")]
    cluster: Option<String>,
    /// Whether services are recovered as well that were deleted after they were saved.
    #[param(default = false)]
    deleted: Option<bool>,
}

/// Recovers services and pods that Redis has lost, from the saved state of the workers.
#[utoipa::path(post, path = "/cluster/recover", tag = "cluster", params(RecoveryOptions), responses(
    (status = 200, description = "The missing objects, and whether they were recovered", body = RecoveryView),
    (status = 409, description = "The workers are of another cluster than this Redis, or of several"),
    (status = 504, description = "No worker has answered"),
    (status = 507, description = "Redis has no memory left for the recovery"),
))]
pub(crate) async fn recover_cluster(
    State(app): State<AppState>,
    Params(options): Params<RecoveryOptions>,
) -> Result<Json<RecoveryView>, ApiProblem> {
    let wait = options.wait_seconds.unwrap_or(DEFAULT_WAIT_SECONDS);
    if wait > MAX_WAIT_SECONDS {
        let detail = format!("wait_seconds is at most {MAX_WAIT_SECONDS}");
        return Err(ApiProblem::new(ProblemKind::InvalidQuery, detail));
    }
    let cluster = options.cluster.map(ClusterId::new).transpose();
    let cluster = cluster.map_err(|error| ApiProblem::new(ProblemKind::InvalidQuery, error.to_string()))?;
    let collected = recovery::collect(&app, Duration::from_secs(wait.into()), cluster).await?;
    Ok(Json(collected.recover(&app.store, options.deleted == Some(true), options.apply == Some(true)).await?))
}

fn view(finding: Finding, repaired: bool) -> FindingView {
    FindingView { repair: finding.repair(), key: finding.key, problem: finding.problem, repaired }
}
