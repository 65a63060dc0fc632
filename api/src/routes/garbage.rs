//! `/node/{name}/gc`: lists or removes unused data on a node's disk.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use model::ids::NodeName;
use model::node::usage::GarbageView;
use serde::Deserialize;
use store::NodeQuestion;
use utoipa::IntoParams;

use super::nodes;
use crate::http::params::{InPath, Params};
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;

/// An engine removes images one by one.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Whether something is removed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct GarbageOptions {
    /// Whether to list only, and remove nothing.
    #[serde(default)]
    #[param(default = false, required = false)]
    dry_run: bool,
}

/// Removes images from a node that no pod there uses and no generation in a service's history needs.
///
/// Only images that this node's worker has used, and not in the last ten minutes. Without a request that
/// happens when the disk is filling up.
#[utoipa::path(post, path = "/node/{name}/gc", tag = "node", params(InPath<NodeName>, GarbageOptions), responses(
    (status = 200, description = "The images that were removed, or could be", body = GarbageView),
    (status = 404, description = "There is no such node"),
    (status = 502, description = "The node could not tell"),
    (status = 504, description = "The node does not respond"),
))]
pub(crate) async fn collect_garbage(
    State(app): State<AppState>,
    InPath(name): InPath<NodeName>,
    Params(options): Params<GarbageOptions>,
) -> Result<Json<GarbageView>, ApiProblem> {
    if app.store.node(&name).await?.is_none() {
        return Err(nodes::not_found(&name));
    }
    let answer = app.store.ask(&name, NodeQuestion::Garbage { removes: !options.dry_run }).await?;
    let (json, failure) = answer.whole(TIMEOUT).await?.ok_or_else(|| {
        let detail =
            format!("node {name} did not answer within {} s: its worker does not run", TIMEOUT.as_secs());
        ApiProblem::new(ProblemKind::NodeNotResponding, detail)
    })?;
    match serde_json::from_slice(&json) {
        Ok(view) if failure.is_empty() => Ok(Json(view)),
        _ => {
            let detail = format!("node {name} could not list its unneeded images: {failure}");
            Err(ApiProblem::new(ProblemKind::NodeFailed, detail))
        }
    }
}
