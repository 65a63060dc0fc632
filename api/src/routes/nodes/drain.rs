//! `/node/{name}/drain`: moves the pods of a node to others, and tells before where they go.

use std::time::Duration;

use api_types::{DrainView, LeavingPodView};
use axum::Json;
use axum::extract::State;
use model::ids::NodeName;
use model::node::Node;
use pending::{LeavingPod, Place, plan_drain};
use placement::PlacementPolicy;
use serde::Deserialize;
use store::RedisKey;
use utoipa::IntoParams;

use super::not_found;
use crate::http::params::{InPath, Params};
use crate::http::problem::ApiProblem;
use crate::state::AppState;
use crate::status::views;

/// Shows where the pods of a node go while it is drained, or where they would go, and why others stay.
#[utoipa::path(get, path = "/node/{name}/drain", tag = "node", params(InPath<NodeName>), responses(
    (status = 200, description = "The pods", body = DrainView),
    (status = 404, description = "There is no such node"),
))]
pub(crate) async fn get_drain(
    State(app): State<AppState>,
    InPath(name): InPath<NodeName>,
) -> Result<Json<DrainView>, ApiProblem> {
    view(&app, &name).await.map(Json)
}

/// How a node is drained.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DrainOptions {
    /// The seconds after which pods that are left are stopped; without it the drain waits for ever.
    #[param(minimum = 0, maximum = 4294967295_u64, example = 600)]
    deadline: Option<u32>,
    /// At the deadline, also stops pods whose data is on the node.
    #[serde(default)]
    stop_bound: bool,
}

/// Cordons a node and moves its pods to other nodes, at the pace of their services.
///
/// A pod that fits no other node stays until one fits, or until the deadline. A service keeps as many ready
/// pods as during an update. The drain goes on without the caller; `uncordon` ends it.
#[utoipa::path(
    post, path = "/node/{name}/drain", tag = "node", params(InPath<NodeName>, DrainOptions),
    responses(
        (status = 200, description = "The pods, and where they go", body = DrainView),
        (status = 404, description = "There is no such node"),
    )
)]
pub(crate) async fn drain_node(
    State(app): State<AppState>,
    InPath(name): InPath<NodeName>,
    Params(DrainOptions { deadline, stop_bound }): Params<DrainOptions>,
) -> Result<Json<DrainView>, ApiProblem> {
    let deadline = deadline.map(|seconds| Duration::from_secs(seconds.into()));
    if !app.store.drain_node(&name, deadline, stop_bound).await? {
        return Err(not_found(&name));
    }
    view(&app, &name).await.map(Json)
}

async fn view(app: &AppState, name: &NodeName) -> Result<DrainView, ApiProblem> {
    let node = app.store.node(name).await;
    let node = node.map_err(|error| ApiProblem::of_key(error, RedisKey::Node(name)))?;
    let Some(Node { drain, .. }) = node else { return Err(not_found(name)) };
    let policy = PlacementPolicy { dead_after: app.config.timing.dead_after, ..PlacementPolicy::default() };
    let leaving = plan_drain(&app.store, &policy, app.config.placement_profile, name).await?;
    let pods = leaving.into_iter().map(pod_view).collect();
    Ok(DrainView { node: name.clone(), order: drain.as_ref().map(views::drain_order), pods })
}

fn pod_view(LeavingPod { record, place, is_bound }: LeavingPod) -> LeavingPodView {
    let (stays, is_global) = (place.why_not().unwrap_or_default(), place == Place::Global);
    LeavingPodView {
        uuid: record.id,
        name: record.name,
        service: record.service,
        replica: record.replica,
        phase: record.phase,
        to: if let Place::On(node) = place { Some(node) } else { None },
        stays,
        is_bound,
        is_global,
    }
}
