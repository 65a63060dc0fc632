//! `/`: the list of routes as plain text.

use axum::Extension;

use crate::openapi::RouteIndex;

/// Lists the routes as plain text.
#[utoipa::path(get, path = "/", tag = "process", responses(
    (status = 200, description = "The routes", body = String, content_type = "text/plain"),
))]
pub(crate) async fn list_routes(Extension(index): Extension<RouteIndex>) -> String {
    index.text()
}
