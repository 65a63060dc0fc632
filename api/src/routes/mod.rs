//! The routes, one file per resource. Each handler carries its own line of the OpenAPI document; what is routed here is
//! what is documented.

mod events;
mod health;
mod index;
mod logs;
mod nodes;
mod pods;
mod queues;
mod services;
mod status;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::App;

/// All routes.
pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(services::create, services::list))
        .routes(routes!(services::get, services::put, services::patch, services::delete))
        .routes(routes!(services::scale))
        .routes(routes!(pods::list))
        .routes(routes!(pods::get, pods::stop))
        .routes(routes!(logs::read))
        .routes(routes!(nodes::list))
        .routes(routes!(nodes::get))
        .routes(routes!(nodes::cordon))
        .routes(routes!(nodes::uncordon))
        .routes(routes!(queues::lengths))
        .routes(routes!(queues::peek))
        .routes(routes!(queues::requeue))
        .routes(routes!(queues::discard))
        .routes(routes!(events::events))
        .routes(routes!(status::status))
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .routes(routes!(health::metrics))
        .routes(routes!(index::index))
}
