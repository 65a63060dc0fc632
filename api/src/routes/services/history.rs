//! History of a service, and undo.

use api_types::{GenerationView, List, ServiceView};
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use model::ids::ServiceName;
use model::service::Service;
use serde::Deserialize;
use store::GenerationOutcome;
use utoipa::IntoParams;

use super::change::ServiceChange;
use super::former::{chosen, former_generations};
use super::stored::read;
use crate::http::params::{IfMatch, InPath, Params, PlacementOptions};
use crate::http::problem::ApiProblem;
use crate::state::AppState;
use crate::status::views;

/// Lists the current generation of a service, then its former ones, the newest first.
///
/// The last ten are kept. Two never have the same specification with the same images: one that was had again
/// is the newest.
#[utoipa::path(
    get, path = "/service/{name}/history", tag = "service", params(InPath<ServiceName>), responses(
        (status = 200, description = "The generations", body = List<GenerationView>),
        (status = 404, description = "There is no such service"),
    )
)]
pub(crate) async fn list_history(
    State(app): State<AppState>,
    InPath(name): InPath<ServiceName>,
) -> Result<Json<List<GenerationView>>, ApiProblem> {
    let service = read(&app, &name).await?;
    let former = former_generations(&app, &name).await?;
    let target = chosen(&service, &former, None).ok().map(|one| one.generation);
    let current =
        views::generation(service.generation, None, outcome(&service), (service.pod, service.images));
    let former = former.into_iter().map(|one| GenerationView {
        undo_target: Some(one.generation) == target,
        ..views::generation(one.generation, Some(one.until), one.outcome, (one.pod, one.images))
    });
    Ok(Json(List { items: std::iter::once(current).chain(former).collect(), next: None }))
}

fn outcome(service: &Service) -> GenerationOutcome {
    let marks = &service.rollout;
    let is_failure = |why: &&String| *why != "paused by hand";
    match marks.paused.as_ref().filter(is_failure).or(marks.held.as_ref()) {
        _ if marks.is_settled || marks.is_known_good => GenerationOutcome::Good,
        Some(why) => GenerationOutcome::Failed(why.clone()),
        None => GenerationOutcome::Unknown,
    }
}

/// The generation to go back to.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct UndoOptions {
    /// The number of a former generation. Without it, the last one that was good, or, if none is known to be
    /// good, the last one that has not failed; after an undo, the one that was undone.
    to: Option<u64>,
    /// Whether a service that does not fit the cluster is stored, so that pods that fit are started.
    #[serde(default)]
    allow_partial: bool,
    /// Whether nothing is written: the answer is 204, or the problem for which the request would be refused.
    #[serde(default)]
    dry_run: bool,
}

/// Replaces the pods of a service by pods of a former specification, step by step.
///
/// This is a new generation. Replicas, labels, dependencies and ingress stay as they are. Without `to` it
/// goes back to the last generation that was good. Repeated, it undoes itself, unless what was undone has
/// failed: clients that retry should send `If-Match`.
#[utoipa::path(
    post, path = "/service/{name}/undo", tag = "service", params(InPath<ServiceName>, UndoOptions, IfMatch),
    responses(
        (status = 200, description = "The pods will be replaced", body = ServiceView),
        (status = 202, description = "Stored, not yet confirmed by all replicas of Redis",
         body = ServiceView),
        (status = 204, description = "It would be stored: `dry_run`"),
        (status = 403, description = "The cluster has as many pods as its settings allow"),
        (status = 404, description = "There is no such service"),
        (status = 409, description = "There is nothing to undo, or the service is being deleted or does not fit"),
        (status = 412, description = "The service has another revision"),
        (status = 507, description = "Redis is too full to add this"),
    )
)]
pub(crate) async fn undo_service(
    State(app): State<AppState>,
    InPath(name): InPath<ServiceName>,
    Params(UndoOptions { to, allow_partial, dry_run }): Params<UndoOptions>,
    condition: IfMatch,
) -> Result<Response, ApiProblem> {
    let options = PlacementOptions { allow_partial, dry_run };
    ServiceChange::Undo { to }.apply(&app, &name, condition, options).await
}
