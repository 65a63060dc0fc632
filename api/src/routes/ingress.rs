//! `/route`: services exposed outside the cluster.

use api_types::{CertificateView, List, RouteView};
use axum::Json;
use axum::extract::State;
use model::network::ingress::IngressRule;
use store::StoreError;

use crate::http::params::{Paging, Params, page_size};
use crate::http::problem::ApiProblem;
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
    let routes = app.store.routing().await?.routes.into_iter();
    let view = |(service, rule): (_, IngressRule)| RouteView {
        route: rule.route(),
        service,
        rule,
        certificate: None,
    };
    let mut items: Vec<RouteView> = routes.map(view).collect();
    items.retain(|item| paging.after.as_ref().is_none_or(|after| item.route > *after));
    items.sort_by(|a, b| a.route.cmp(&b.route));
    let has_more = items.len() > limit;
    items.truncate(limit);
    add_certificates(&app, &mut items).await?;
    let next = items.last().filter(|_| has_more).map(|item| item.route.clone());
    Ok(Json(List { items, next }))
}

async fn add_certificates(app: &AppState, items: &mut [RouteView]) -> Result<(), ApiProblem> {
    let hosts: Vec<String> =
        items.iter().filter_map(|item| item.rule.auto_host()).map(str::to_owned).collect();
    if hosts.is_empty() {
        return Ok(());
    }
    let (_, statuses) = app.store.certificate_statuses(&hosts).await?;
    let ordered = items.iter_mut().filter(|item| item.rule.auto_host().is_some());
    for (item, status) in ordered.zip(statuses) {
        let unreadable = |error: StoreError| CertificateView {
            error: Some(error.to_string()),
            ..CertificateView::default()
        };
        item.certificate = Some(status.map_or_else(unreadable, CertificateView::from));
    }
    Ok(())
}
