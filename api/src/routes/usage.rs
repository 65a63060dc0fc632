//! `/stats`: current usage. Workers measure while clients ask.

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use model::ids::{NodeName, PodId};
use model::node::usage::{ClusterUsageView, NodeUsageView, PodUsageView};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{nodes, pods};
use crate::http::params::{InPath, Params};
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;

/// The usage to show.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct UsageOptions {
    /// Whether the pods are listed, beside the nodes.
    #[param(default = true)]
    pods: Option<bool>,
}

/// Shows the usage of all nodes and pods.
///
/// Workers measure every two seconds, and stop 15 seconds after the last request. The first request waits for
/// them up to 2.5 seconds.
#[utoipa::path(get, path = "/stats", tag = "node", params(UsageOptions), responses(
    (status = 200, description = "The usage", body = ClusterUsageView),
))]
pub(crate) async fn get_cluster_stats(
    State(app): State<AppState>,
    Params(options): Params<UsageOptions>,
) -> Result<Response, ApiProblem> {
    let usage = app.usage.of(&app.store, None).await?;
    if options.pods == Some(false) {
        let ClusterUsageView { nodes, missing, .. } = &usage.view;
        let nodes_alone =
            ClusterUsageView { nodes: nodes.clone(), missing: missing.clone(), pods: Vec::new() };
        return Ok(Json(nodes_alone).into_response());
    }
    Ok(([(CONTENT_TYPE, "application/json")], usage.json()).into_response())
}

/// Shows the usage of a pod.
#[utoipa::path(get, path = "/pod/{uuid}/stats", tag = "pod", params(InPath<PodId>), responses(
    (status = 200, description = "Its usage", body = PodUsageView),
    (status = 404, description = "There is no such pod"),
    (status = 409, description = "The pod is not on a node"),
    (status = 504, description = "The node does not measure"),
))]
pub(crate) async fn get_pod_stats(
    State(app): State<AppState>,
    InPath(pod): InPath<PodId>,
) -> Result<Json<PodUsageView>, ApiProblem> {
    let record = pods::read(&app, &pod).await?;
    let Some(node) = record.node else {
        let detail = format!("pod {pod} is {} and not on a node, so it uses nothing", record.phase);
        return Err(ApiProblem::new(ProblemKind::PodNotAssigned, detail));
    };
    let usage = app.usage.of(&app.store, Some(&node)).await?;
    let found = usage.view.pods.iter().find(|usage| usage.pod.uuid == pod).cloned();
    found.map(Json).ok_or_else(|| not_measured(&format!("pod {pod}"), &node))
}

/// Shows the usage of a node.
#[utoipa::path(get, path = "/node/{name}/stats", tag = "node", params(InPath<NodeName>), responses(
    (status = 200, description = "Its usage", body = NodeUsageView),
    (status = 404, description = "There is no such node"),
    (status = 504, description = "The node does not measure"),
))]
pub(crate) async fn get_node_stats(
    State(app): State<AppState>,
    InPath(name): InPath<NodeName>,
) -> Result<Json<NodeUsageView>, ApiProblem> {
    if app.store.node(&name).await?.is_none() {
        return Err(nodes::not_found(&name));
    }
    let usage = app.usage.of(&app.store, Some(&name)).await?;
    usage.view.nodes.first().cloned().map(Json).ok_or_else(|| not_measured(&format!("node {name}"), &name))
}

fn not_measured(what: &str, node: &NodeName) -> ApiProblem {
    let detail = format!(
        "node {node} has not told what {what} uses: it has just begun, its worker does not run, or is of another \
         version; try again in a few seconds"
    );
    ApiProblem::new(ProblemKind::NodeNotResponding, detail)
}
