//! `/node`: machines that run pods.

mod drain;
mod plan;

use api_types::{List, NodeLabelsPatch, NodeView};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use model::ids::NodeName;
use model::node::{Node, labels};
use serde::Deserialize;
use store::{LabelNodeOutcome, RedisKey, RemoveNodeOutcome};
use utoipa::IntoParams;

use crate::http::body::JsonOrYaml;
use crate::http::params::{InPath, Paging, Params, page_of};
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;
use crate::status::views;

pub(crate) use self::drain::{__path_drain_node, __path_get_drain, drain_node, get_drain};
pub(crate) use self::plan::{__path_plan_changes, plan_changes};

/// Lists nodes, dead ones included.
///
/// A node whose record cannot be read is left out: `GET /status` names it.
#[utoipa::path(get, path = "/node", tag = "node", params(Paging), responses(
    (status = 200, description = "Nodes by name", body = List<NodeView>),
))]
pub(crate) async fn list_nodes(
    State(app): State<AppState>,
    Params(paging): Params<Paging>,
) -> Result<Json<List<NodeView>>, ApiProblem> {
    let names = app.store.node_names().await;
    let names = names.map_err(|error| ApiProblem::of_key(error, RedisKey::Nodes))?;
    let (names, next) = page_of(names, &paging)?;
    let nodes = app.store.nodes(&names).await?.found();
    Ok(Json(List { items: views_of(&app, nodes).await?, next }))
}

/// Shows one node.
#[utoipa::path(get, path = "/node/{name}", tag = "node", params(InPath<NodeName>), responses(
    (status = 200, description = "The node", body = NodeView),
    (status = 404, description = "There is no such node"),
))]
pub(crate) async fn get_node(
    State(app): State<AppState>,
    InPath(name): InPath<NodeName>,
) -> Result<Json<NodeView>, ApiProblem> {
    read_view(&app, &name).await
}

/// How a node is removed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RemoveNodeQuery {
    /// Leaves the node in the cluster, and gives up the volumes of machines that had its name before.
    #[serde(default)]
    former: bool,
}

/// Removes a dead node whose pods have been moved. A worker of its name can register again.
#[utoipa::path(delete, path = "/node/{name}", tag = "node", params(InPath<NodeName>, RemoveNodeQuery), responses(
    (status = 204, description = "The node was removed, or the volumes are given up"),
    (status = 404, description = "There is no such node, or no former machine of its name"),
    (status = 409, description = "The node is alive, or its pods are still being moved"),
))]
pub(crate) async fn remove_node(
    State(app): State<AppState>,
    InPath(name): InPath<NodeName>,
    Params(RemoveNodeQuery { former }): Params<RemoveNodeQuery>,
) -> Result<StatusCode, ApiProblem> {
    match app.store.remove_node(&name, former).await? {
        RemoveNodeOutcome::Removed => Ok(StatusCode::NO_CONTENT),
        RemoveNodeOutcome::Missing if former => Err(ApiProblem::new(
            ProblemKind::NodeNotFound,
            format!("no other machine with volumes had the name {name} before"),
        )),
        RemoveNodeOutcome::Missing => Err(not_found(&name)),
        RemoveNodeOutcome::Alive => Err(ApiProblem::new(
            ProblemKind::NodeInUse,
            format!(
                "node {name} was not declared dead: stop its worker and wait until `kubeleet node ls` shows \
                 it as dead"
            ),
        )),
        RemoveNodeOutcome::Draining => Err(ApiProblem::new(
            ProblemKind::NodeInUse,
            format!("the pods of node {name} are still being moved to other nodes: try again soon"),
        )),
    }
}

/// Places no new pods on a node. Pods that run there keep running.
#[utoipa::path(post, path = "/node/{name}/cordon", tag = "node", params(InPath<NodeName>), responses(
    (status = 200, description = "The node, cordoned", body = NodeView),
    (status = 404, description = "There is no such node"),
))]
pub(crate) async fn cordon_node(
    State(app): State<AppState>,
    InPath(name): InPath<NodeName>,
) -> Result<Json<NodeView>, ApiProblem> {
    set_cordon(&app, &name, true).await
}

/// Allows new pods on a node again.
#[utoipa::path(post, path = "/node/{name}/uncordon", tag = "node", params(InPath<NodeName>), responses(
    (status = 200, description = "The node, no longer cordoned", body = NodeView),
    (status = 404, description = "There is no such node"),
))]
pub(crate) async fn uncordon_node(
    State(app): State<AppState>,
    InPath(name): InPath<NodeName>,
) -> Result<Json<NodeView>, ApiProblem> {
    set_cordon(&app, &name, false).await
}

async fn set_cordon(app: &AppState, name: &NodeName, cordoned: bool) -> Result<Json<NodeView>, ApiProblem> {
    if !app.store.cordon(name, cordoned).await? {
        return Err(not_found(name));
    }
    read_view(app, name).await
}

/// Sets and removes labels of a node.
///
/// They count before those of `KUBELEET_LABELS`, also after a restart of the worker. Pods that run there keep
/// running.
#[utoipa::path(
    patch, path = "/node/{name}/labels", tag = "node", params(InPath<NodeName>),
    request_body(description = "The labels to change", content(
        (NodeLabelsPatch = "application/json", example = json!({"zone": "b", "disk": null})),
        (NodeLabelsPatch = "application/yaml", example = json!({"zone": "b", "disk": null})),
    )),
    responses(
        (status = 200, description = "The node with its labels, changed or unchanged", body = NodeView),
        (status = 404, description = "There is no such node"),
        (status = 422, description = "A key or value is invalid, or the node would have more than 64 labels"),
        (status = 507, description = "Redis is too full to add this"),
    )
)]
pub(crate) async fn label_node(
    State(app): State<AppState>,
    InPath(name): InPath<NodeName>,
    JsonOrYaml(NodeLabelsPatch(changes)): JsonOrYaml<NodeLabelsPatch>,
) -> Result<Json<NodeView>, ApiProblem> {
    let violations = labels::violations(&changes);
    if !violations.is_empty() {
        let mut problem = ApiProblem::from(violations);
        problem.kind = ProblemKind::InvalidLabels;
        return Err(problem);
    }
    let outcome = app.store.label_node(&name, &changes).await;
    match outcome.map_err(|error| ApiProblem::of_key(error, RedisKey::Node(&name)))? {
        LabelNodeOutcome::Relabelled | LabelNodeOutcome::Same => read_view(&app, &name).await,
        LabelNodeOutcome::Missing => Err(not_found(&name)),
        LabelNodeOutcome::Full => Err(ApiProblem::new(
            ProblemKind::InvalidLabels,
            format!(
                "node {name} would have more than {} labels: remove some in the same request",
                labels::MAX_LABELS
            ),
        )),
    }
}

async fn read_view(app: &AppState, name: &NodeName) -> Result<Json<NodeView>, ApiProblem> {
    let node = app.store.node(name).await;
    let node = node.map_err(|error| ApiProblem::of_key(error, RedisKey::Node(name)))?;
    let found = views_of(app, node.into_iter().collect()).await?.pop();
    found.map(Json).ok_or_else(|| not_found(name))
}

async fn views_of(app: &AppState, nodes: Vec<Node>) -> Result<Vec<NodeView>, ApiProblem> {
    let found: Vec<NodeName> = nodes.iter().map(|node| node.name.clone()).collect();
    let (queues, _broken) = app.store.node_queues(&found).await?;
    let now = app.store.redis_now().await?;
    let fresh = app.config.timing.fence_after;
    Ok(nodes.into_iter().zip(queues).map(|(node, queues)| views::node(node, queues, now, fresh)).collect())
}

pub(super) fn not_found(name: &NodeName) -> ApiProblem {
    let detail =
        format!("there is no node {name}: no worker has registered under this name. GET /node lists them");
    ApiProblem::new(ProblemKind::NodeNotFound, detail)
}
