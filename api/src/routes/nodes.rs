//! `/node`: what can hold pods.

use axum::Json;
use axum::extract::{Path, State};
use common::ids::NodeName;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::dto::{List, NodeView, Problem};
use crate::problem::{ApiProblem, Kind};
use crate::query::{self, Params, node_name};
use crate::state::App;
use crate::views;

/// Which page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Paging {
    /// At most so many, 1000 unless said.
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// Lists nodes, dead ones included.
#[utoipa::path(get, path = "/node", tag = "node", params(Paging), responses(
    (status = 200, body = List<NodeView>),
))]
pub(crate) async fn list(
    State(app): State<App>,
    Params(paging): Params<Paging>,
) -> Result<Json<List<NodeView>>, ApiProblem> {
    let limit = query::limit(paging.limit)?;
    let mut names = app.store.node_names().await?;
    names.retain(|name| paging.after.as_deref().is_none_or(|after| name.as_str() > after));
    let more = names.len() > limit;
    names.truncate(limit);
    let next = names.last().filter(|_| more).map(ToString::to_string);
    Ok(Json(List { items: views_of(&app, &names).await?, next }))
}

/// Shows one node.
#[utoipa::path(get, path = "/node/{name}", tag = "node", responses(
    (status = 200, body = NodeView),
    (status = 404, description = "There is no such node", body = Problem),
))]
pub(crate) async fn get(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<NodeView>, ApiProblem> {
    one(&app, &node_name(name)?).await
}

/// Places nothing new on a node. What runs there goes on.
#[utoipa::path(post, path = "/node/{name}/cordon", tag = "node", responses(
    (status = 200, body = NodeView),
    (status = 404, description = "There is no such node", body = Problem),
))]
pub(crate) async fn cordon(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<NodeView>, ApiProblem> {
    set_cordon(&app, &node_name(name)?, true).await
}

/// Lets new pods be placed on a node again.
#[utoipa::path(post, path = "/node/{name}/uncordon", tag = "node", responses(
    (status = 200, body = NodeView),
    (status = 404, description = "There is no such node", body = Problem),
))]
pub(crate) async fn uncordon(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<NodeView>, ApiProblem> {
    set_cordon(&app, &node_name(name)?, false).await
}

async fn set_cordon(app: &App, name: &NodeName, cordoned: bool) -> Result<Json<NodeView>, ApiProblem> {
    if !app.store.cordon(name, cordoned).await? {
        return Err(missing(name));
    }
    one(app, name).await
}

async fn one(app: &App, name: &NodeName) -> Result<Json<NodeView>, ApiProblem> {
    let found = views_of(app, std::slice::from_ref(name)).await?.pop();
    found.map(Json).ok_or_else(|| missing(name))
}

async fn views_of(app: &App, names: &[NodeName]) -> Result<Vec<NodeView>, ApiProblem> {
    let nodes = app.store.nodes(names).await?;
    let found: Vec<NodeName> = nodes.iter().map(|node| node.name.clone()).collect();
    let queues = app.store.node_queues(&found).await?;
    let now = app.store.redis_now().await?;
    let fresh = app.config.timing.fence_after;
    Ok(nodes.into_iter().zip(queues).map(|(node, queues)| views::node(node, queues, now, fresh)).collect())
}

fn missing(name: &NodeName) -> ApiProblem {
    let detail =
        format!("there is no node {name}: no worker of this name ever registered. GET /node lists them");
    ApiProblem::new(Kind::NodeNotFound, detail)
}
