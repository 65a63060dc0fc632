//! `/route`: what is reached from outside the cluster.

use axum::Json;
use axum::extract::State;
use common::api::{List, RouteView};

use crate::params::{Paging, Params, page_size};
use crate::problem::ApiProblem;
use crate::state::AppState;

/// Lists the routes of all services: hosts, paths and ports of nodes, and where they lead.
#[utoipa::path(get, path = "/route", tag = "service", params(Paging), responses(
    (status = 200, description = "Routes in the order of their names", body = List<RouteView>),
))]
pub(crate) async fn list_cluster_routes(
    State(app): State<AppState>,
    Params(paging): Params<Paging>,
) -> Result<Json<List<RouteView>>, ApiProblem> {
    let limit = page_size(paging.limit)?;
    let routes = app.store.routes().await?.into_iter();
    let view =
        |(service, rule): (_, common::ingress::IngressRule)| RouteView { route: rule.route(), service, rule };
    let mut items: Vec<RouteView> = routes.map(view).collect();
    items.retain(|item| paging.after.as_ref().is_none_or(|after| item.route > *after));
    items.sort_by(|a, b| a.route.cmp(&b.route));
    let has_more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| has_more).map(|item| item.route.clone());
    Ok(Json(List { items, next }))
}
