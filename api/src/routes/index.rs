//! `/`: what there is, for who comes by with curl.

use crate::router;

/// Lists the routes.
#[utoipa::path(get, path = "/", tag = "process", responses((status = 200, description = "The routes", body = String)))]
pub(crate) async fn index() -> &'static str {
    router::index()
}
