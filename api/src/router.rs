//! Assembles the API: routes, access control, and common layers.

use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::{Extension, Router};
use utoipa_swagger_ui::SwaggerUi;

use crate::http::auth::require_access;
use crate::http::body::MAX_BODY_BYTES;
use crate::http::middleware;
use crate::http::problem::ApiProblem;
use crate::openapi::{self, RouteIndex};
use crate::routes::routes;
use crate::state::AppState;

pub(crate) fn router(app: AppState) -> Router {
    let (routes, document) = routes().split_for_parts();
    let index = RouteIndex::new(&document);
    let access = app.access.clone();
    let router = routes
        .with_state(app)
        .layer(Extension(index))
        .merge(SwaggerUi::new("/docs").external_url_unchecked("/openapi.json", openapi::complete(document)))
        .fallback(async || ApiProblem::route_not_found())
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(from_fn_with_state(access, require_access));
    middleware::apply(router)
}
