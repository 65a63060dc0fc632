//! Pauses, resumes and promotes rollouts.

use api_types::ServiceView;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use model::ids::ServiceName;
use model::service::ServiceState;
use store::{MarkOutcome, RolloutMark};

use super::stored::{being_deleted, read, with_etag};
use crate::http::params::InPath;
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;
use crate::status::kind_status;

/// Replaces no further pod of a service, until it is resumed or undone.
///
/// If nothing is replaced now, the next change waits. Pods that are missing are still created, of the current
/// generation.
#[utoipa::path(
    post, path = "/service/{name}/pause", tag = "service", params(InPath<ServiceName>), responses(
        (status = 200, description = "Paused", body = ServiceView),
        (status = 404, description = "There is no such service"),
        (status = 409, description = "The service is being deleted, or was changed just now"),
        (status = 507, description = "Redis is too full to add this"),
    )
)]
pub(crate) async fn pause_service(
    State(app): State<AppState>,
    InPath(name): InPath<ServiceName>,
) -> Result<Response, ApiProblem> {
    mark(&app, &name, RolloutMark::PausedByHand).await
}

/// Replaces the pods of a service further, also if new ones are bad.
#[utoipa::path(
    post, path = "/service/{name}/resume", tag = "service", params(InPath<ServiceName>), responses(
        (status = 200, description = "Resumed, or not paused", body = ServiceView),
        (status = 404, description = "There is no such service"),
        (status = 409, description = "The service is being deleted, or was changed just now"),
        (status = 507, description = "Redis is too full to add this"),
    )
)]
pub(crate) async fn resume_service(
    State(app): State<AppState>,
    InPath(name): InPath<ServiceName>,
) -> Result<Response, ApiProblem> {
    mark(&app, &name, RolloutMark::Resumed).await
}

/// Replaces the pods of a service after the first ones, too, which `canary` of its update policy waits for.
///
/// They are still judged. Without a `canary` this changes nothing.
#[utoipa::path(
    post, path = "/service/{name}/promote", tag = "service", params(InPath<ServiceName>), responses(
        (status = 200, description = "Promoted, or promoted before", body = ServiceView),
        (status = 404, description = "There is no such service"),
        (status = 409, description = "The service is being deleted, or was changed just now"),
        (status = 507, description = "Redis is too full to add this"),
    )
)]
pub(crate) async fn promote_service(
    State(app): State<AppState>,
    InPath(name): InPath<ServiceName>,
) -> Result<Response, ApiProblem> {
    mark(&app, &name, RolloutMark::Promoted).await
}

async fn mark(app: &AppState, name: &ServiceName, mark: RolloutMark<'_>) -> Result<Response, ApiProblem> {
    let service = read(app, name).await?;
    if service.state == ServiceState::Deleting {
        return Err(being_deleted(name));
    }
    if app.store.mark_rollout(&service, mark).await? == MarkOutcome::Changed {
        let detail = format!("service {name} was changed at the same moment; look at it and try again");
        return Err(ApiProblem::new(ProblemKind::ConcurrentModification, detail));
    }
    let service = read(app, name).await?;
    Ok(with_etag(StatusCode::OK, kind_status::view(&app.store, service).await?))
}
