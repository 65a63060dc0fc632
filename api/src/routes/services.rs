//! `/service`: desired services.

mod change;
mod checks;
mod dependencies;
mod former;
mod history;
mod jobs;
mod rollout;
mod selection;
mod stored;

use api_types::{List, ScaleInput, ServiceView};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, TryStreamExt};
use model::ids::{AppName, ServiceName};
use model::spec::{DesiredService, Kind, MAX_REPLICAS, ServiceInput};
use serde::Deserialize;
use serde_json::Value;
use store::{DeleteOutcome, PutMode, PutOutcome, RestartOutcome, ScaleOutcome};
use utoipa::{IntoParams, ToSchema};

use self::change::ServiceChange;
use self::checks::{check_capacity, check_name, check_service};
use self::selection::ServiceSelection;
use self::stored::{
    being_deleted, exists, find, not_found, respond, respond_stored, respond_to_dry_run, revision_conflict,
    with_etag,
};
use crate::admission::capacity::Demand;
use crate::admission::growth::Growth;
use crate::http::body::JsonOrYaml;
use crate::http::params::{IfMatch, InPath, Params, PlacementOptions, SelectorText, query_pairs};
use crate::http::patch;
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;
use crate::status::kind_status;

const MAX_CONCURRENT_COUNTS: usize = 16;

pub(crate) use self::history::{__path_list_history, __path_undo_service, list_history, undo_service};
pub(crate) use self::jobs::{__path_list_results, __path_run_service, list_results, run_service};
pub(crate) use self::rollout::{
    __path_pause_service, __path_promote_service, __path_resume_service, pause_service, promote_service,
    resume_service,
};
pub(super) use self::selection::select_names;
pub(super) use self::stored::read;

/// The fields of a service to change, by their names in `ServiceInput`; `null` removes a field.
#[derive(ToSchema)]
#[schema(value_type = Object)]
pub(crate) struct ServicePatch(#[allow(dead_code, reason = "only describes a body")] Value);

/// Creates a service and its pods.
#[utoipa::path(post, path = "/service", tag = "service", params(PlacementOptions),
    request_body(description = "The service", content(
    (ServiceInput = "application/json", example = json!({"name": "web", "image": "nginx", "replicas": 3})),
    (ServiceInput = "application/yaml", example = json!({"name": "web", "image": "nginx", "replicas": 3})),
)), responses(
    (status = 201, description = "Created", body = ServiceView, headers(
        ("Location" = String, description = "The path of the service"),
        ("ETag" = String, description = "Its revision"),
    )),
    (status = 202, description = "Created, not yet confirmed by all replicas of Redis", body = ServiceView,
     headers(
        ("Location" = String, description = "The path of the service"),
        ("ETag" = String, description = "Its revision"),
    )),
    (status = 204, description = "It would be stored: `dry_run`"),
    (status = 403, description = "The cluster has as many services or pods as its settings allow"),
    (status = 409, description = "The service exists, is being deleted, or does not fit the cluster"),
    (status = 422, description = "The service has invalid values"),
    (status = 507, description = "Redis is too full to add this"),
))]
pub(crate) async fn create_service(
    State(app): State<AppState>,
    Params(options): Params<PlacementOptions>,
    JsonOrYaml(input): JsonOrYaml<ServiceInput>,
) -> Result<Response, ApiProblem> {
    let desired = input.normalize()?;
    check_service(&app, &desired, None, options).await?;
    if options.dry_run {
        return match find(&app, &desired.name).await? {
            Some(_) => Err(exists(&desired.name)),
            None => Ok(StatusCode::NO_CONTENT.into_response()),
        };
    }
    let (outcome, created_pods, written) = app.store.create_service(&desired).await?;
    respond(&app, &desired.name, outcome, created_pods, written).await
}

/// Lists services.
///
/// A service whose record cannot be read is left out: `GET /status` names it.
#[utoipa::path(get, path = "/service", tag = "service", params(
    ("label" = inline(Option<Vec<SelectorText>>), Query,
     description = "Only services that this label selector selects; repeatable"),
    ("app" = Option<AppName>, Query, description = "Only the services of this app"),
    ("limit" = Option<u32>, Query, description = "Items on the page", minimum = 1, maximum = 10000),
    ("after" = Option<String>, Query, description = "The `next` of the previous page"),
), responses(
    (status = 200, description = "Services by name", body = List<ServiceView>),
))]
pub(crate) async fn list_services(
    State(app): State<AppState>,
    uri: Uri,
) -> Result<Json<List<ServiceView>>, ApiProblem> {
    let selection = ServiceSelection::read(query_pairs(&uri)?)?;
    let mut found = selection.services(&app).await?;
    let next = (found.len() > selection.limit).then(|| {
        found.truncate(selection.limit);
        found.last().map(|service| service.name.to_string())
    });
    let store = &app.store;
    let items = futures_util::stream::iter(
        found.into_iter().map(|service| async move { kind_status::view(store, service).await }),
    );
    let items = items.buffered(MAX_CONCURRENT_COUNTS).try_collect().await?;
    Ok(Json(List { items, next: next.flatten() }))
}

/// Shows one service.
#[utoipa::path(get, path = "/service/{name}", tag = "service", params(InPath<ServiceName>), responses(
    (status = 200, description = "The service", body = ServiceView, headers(
        ("ETag" = String, description = "Its revision"),
    )),
    (status = 404, description = "There is no such service"),
))]
pub(crate) async fn get_service(
    State(app): State<AppState>,
    InPath(name): InPath<ServiceName>,
) -> Result<Response, ApiProblem> {
    let service = read(&app, &name).await?;
    Ok(with_etag(StatusCode::OK, kind_status::view(&app.store, service).await?))
}

/// Creates or replaces a service.
#[utoipa::path(
    put, path = "/service/{name}", tag = "service", params(InPath<ServiceName>, IfMatch, PlacementOptions),
    request_body(description = "The service; `name` must be the name in the path", content(
        (ServiceInput = "application/json", example = json!({"name": "web", "image": "nginx:2"})),
        (ServiceInput = "application/yaml", example = json!({"name": "web", "image": "nginx:2"})),
    )),
    responses(
        (status = 200, description = "Replaced, or unchanged", body = ServiceView),
        (status = 201, description = "Created", body = ServiceView),
        (status = 202, description = "Stored, not yet confirmed by all replicas of Redis",
         body = ServiceView),
        (status = 204, description = "It would be stored: `dry_run`"),
        (status = 403, description = "The cluster has as many services or pods as its settings allow"),
        (status = 404, description = "The name in the path is not a valid name of a service"),
        (status = 409, description = "The service is being deleted, or does not fit the cluster"),
        (status = 412, description = "The service has another revision, or does not exist"),
        (status = 422, description = "The service has invalid values, or another name than the path"),
        (status = 507, description = "Redis is too full to add this"),
    )
)]
pub(crate) async fn put_service(
    State(app): State<AppState>,
    InPath(name): InPath<ServiceName>,
    condition: IfMatch,
    Params(options): Params<PlacementOptions>,
    JsonOrYaml(input): JsonOrYaml<ServiceInput>,
) -> Result<Response, ApiProblem> {
    check_name(&name, &input)?;
    let desired = input.normalize()?;
    let (mode, expected) = match condition {
        IfMatch::None => (PutMode::Upsert, None),
        IfMatch::Exists => (PutMode::Replace, None),
        IfMatch::Revision(revision) => (PutMode::Replace, Some(revision)),
    };
    let existing = app.store.service(&name).await?;
    check_service(&app, &desired, existing.as_ref(), options).await?;
    if options.dry_run {
        return respond_to_dry_run(&desired, existing.as_ref(), expected);
    }
    let (outcome, written) = app.store.put_service(&desired, mode, expected).await?;
    if outcome == PutOutcome::Missing {
        let detail = format!("there is no service {name}, but If-Match requires it to exist");
        return Err(ApiProblem::new(ProblemKind::RevisionConflict, detail));
    }
    // The reconcile loop creates them: only POST, whose answer is the first minute's, does it itself.
    let created_pods = 0;
    respond(&app, &name, outcome, created_pods, written).await
}

/// Changes some fields of a service.
///
/// The body is a JSON merge patch (RFC 7396) of the body of `PUT`: `null` removes a field.
#[utoipa::path(
    patch, path = "/service/{name}", tag = "service", params(InPath<ServiceName>, IfMatch, PlacementOptions),
    request_body(description = "The fields to change", content(
        (ServicePatch = "application/merge-patch+json", example = json!({"image": "nginx:2"})),
        (ServicePatch = "application/yaml", example = json!({"image": "nginx:2"})),
    )),
    responses(
        (status = 200, description = "Changed, or unchanged", body = ServiceView),
        (status = 202, description = "Stored, not yet confirmed by all replicas of Redis",
         body = ServiceView),
        (status = 204, description = "It would be stored: `dry_run`"),
        (status = 403, description = "The cluster has as many services or pods as its settings allow"),
        (status = 404, description = "There is no such service"),
        (status = 409, description = "The service is being deleted, does not fit, is changed by others, or has a taken route"),
        (status = 412, description = "The service has another revision"),
        (status = 422, description = "The changed service has invalid values"),
        (status = 507, description = "Redis is too full to add this"),
    )
)]
pub(crate) async fn patch_service(
    State(app): State<AppState>,
    InPath(name): InPath<ServiceName>,
    condition: IfMatch,
    Params(options): Params<PlacementOptions>,
    JsonOrYaml(patch): JsonOrYaml<Value>,
) -> Result<Response, ApiProblem> {
    let change = ServiceChange::Patch(patch::fields(patch)?);
    change.apply(&app, &name, condition, options).await
}

/// Objects to delete with a service.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeleteOptions {
    /// Whether its persistent volumes are removed with their data. Otherwise they stay.
    volumes: Option<bool>,
}

/// Deletes a service: its pods are stopped, then it is forgotten.
#[utoipa::path(
    delete, path = "/service/{name}", tag = "service", params(InPath<ServiceName>, DeleteOptions, IfMatch), responses(
        (status = 202, description = "The pods are being stopped", body = ServiceView),
        (status = 204, description = "Deleted, and already forgotten"),
        (status = 404, description = "There is no such service"),
        (status = 412, description = "The service has another revision"),
    )
)]
pub(crate) async fn delete_service(
    State(app): State<AppState>,
    InPath(name): InPath<ServiceName>,
    Params(options): Params<DeleteOptions>,
    condition: IfMatch,
) -> Result<Response, ApiProblem> {
    let (outcome, written) = app.store.delete_service_if(&name, condition.revision()).await?;
    // Otherwise a live service would lose data. A repeated request completes the first one, even if the
    // service is gone by now.
    let is_deleted = matches!(outcome, DeleteOutcome::Deleted | DeleteOutcome::Missing);
    let has_removed =
        options.volumes.unwrap_or(false) && is_deleted && app.store.remove_volumes_of(&name).await? > 0;
    match outcome {
        DeleteOutcome::Deleted => {}
        DeleteOutcome::Missing if has_removed => return Ok(StatusCode::NO_CONTENT.into_response()),
        DeleteOutcome::Missing => return Err(not_found(&name)),
        DeleteOutcome::Conflict { revision } => return Err(revision_conflict(&name, revision)),
    }
    let durability = app.note_write(&name, written);
    let Some(service) = find(&app, &name).await? else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let mut view = kind_status::view(&app.store, service).await?;
    view.durability = Some(durability);
    Ok((StatusCode::ACCEPTED, Json(view)).into_response())
}

/// Changes the number of pods of a service, and nothing else.
#[utoipa::path(
    post, path = "/service/{name}/scale", tag = "service",
    params(InPath<ServiceName>, IfMatch, PlacementOptions),
    request_body(description = "The number of pods", content(
        (ScaleInput = "application/json", example = json!({"replicas": 5})),
        (ScaleInput = "application/yaml", example = json!({"replicas": 5})),
    )),
    responses(
        (status = 200, description = "Stored", body = ServiceView),
        (status = 202, description = "Stored, not yet confirmed by all replicas of Redis",
         body = ServiceView),
        (status = 204, description = "It would be stored: `dry_run`"),
        (status = 403, description = "The cluster has as many services or pods as its settings allow"),
        (status = 404, description = "There is no such service"),
        (status = 409, description = "The service is being deleted, or does not fit the cluster"),
        (status = 412, description = "The service has another revision"),
        (status = 422, description = "The number of pods is too large"),
        (status = 507, description = "Redis is too full to add this"),
    )
)]
pub(crate) async fn scale_service(
    State(app): State<AppState>,
    InPath(name): InPath<ServiceName>,
    condition: IfMatch,
    Params(options): Params<PlacementOptions>,
    JsonOrYaml(ScaleInput { replicas }): JsonOrYaml<ScaleInput>,
) -> Result<Response, ApiProblem> {
    if replicas > MAX_REPLICAS {
        let detail = format!("at most {MAX_REPLICAS} replicas");
        return Err(ApiProblem::new(ProblemKind::InvalidService, &detail).at("/replicas", detail.clone()));
    }
    let service = app.store.service(&name).await?.ok_or_else(|| not_found(&name))?;
    if !service.kind().is_service() {
        return Err(not_scaled(&name, service.kind()));
    }
    if service.is_global() {
        return Err(global_not_scaled(&name));
    }
    // Only the number of pods is new: `check_service` judged the rest.
    app.admit(Growth::of_pods(service.replicas, replicas)).await?;
    check_capacity(&app, &Demand::of_scale(&service, replicas), options).await?;
    if options.dry_run {
        let desired = DesiredService { replicas, ..service.clone().into() };
        return respond_to_dry_run(&desired, Some(&service), condition.revision());
    }
    let (outcome, written) = app.store.scale_service_if(&name, replicas, condition.revision()).await?;
    match outcome {
        ScaleOutcome::Scaled { .. } => respond_stored(&app, &name, StatusCode::OK, written).await,
        ScaleOutcome::Missing => Err(not_found(&name)),
        ScaleOutcome::Deleting => Err(being_deleted(&name)),
        ScaleOutcome::Conflict { revision } => Err(revision_conflict(&name, revision)),
        ScaleOutcome::OtherKind { kind } => Err(not_scaled(&name, kind)),
        ScaleOutcome::Global => Err(global_not_scaled(&name)),
    }
}

/// Has all pods of a service replaced, step by step.
///
/// This is a new generation with the same specification. Repeated, it replaces them once more: clients that
/// retry should send `If-Match`.
#[utoipa::path(
    post, path = "/service/{name}/restart", tag = "service", params(InPath<ServiceName>, IfMatch), responses(
        (status = 200, description = "The pods will be replaced", body = ServiceView),
        (status = 202, description = "Stored, not yet confirmed by all replicas of Redis",
         body = ServiceView),
        (status = 404, description = "There is no such service"),
        (status = 409, description = "The service is being deleted"),
        (status = 412, description = "The service has another revision"),
        (status = 507, description = "Redis is too full to add this"),
    )
)]
pub(crate) async fn restart_service(
    State(app): State<AppState>,
    InPath(name): InPath<ServiceName>,
    condition: IfMatch,
) -> Result<Response, ApiProblem> {
    let (outcome, written) = app.store.restart_service(&name, condition.revision()).await?;
    match outcome {
        RestartOutcome::Restarted { .. } | RestartOutcome::DoneBefore => {
            respond_stored(&app, &name, StatusCode::OK, written).await
        }
        RestartOutcome::Missing => Err(not_found(&name)),
        RestartOutcome::Deleting => Err(being_deleted(&name)),
        RestartOutcome::Conflict { revision } => Err(revision_conflict(&name, revision)),
        RestartOutcome::OtherKind { kind } => {
            let what = match kind {
                Kind::Cron => format!("`kubeleet cron run {name}` creates a job of it now"),
                _ => "delete it and create it again".to_owned(),
            };
            let detail = format!("{name} is a {kind}: none of its pods is replaced; {what}");
            Err(ApiProblem::new(ProblemKind::WrongKind, detail))
        }
    }
}

fn global_not_scaled(name: &ServiceName) -> ApiProblem {
    let detail = format!(
        "{name} is global: it has one pod on each eligible node, and its `placement.constraints` say which those are; \
         nothing was changed"
    );
    ApiProblem::new(ProblemKind::WrongKind, detail)
}

fn not_scaled(name: &ServiceName, kind: Kind) -> ApiProblem {
    let what = match kind {
        Kind::Cron => {
            "has no pods of its own; `job.parallelism` says how many pods each of its jobs has at a time"
        }
        _ => "has no replicas; `job.parallelism` says how many pods it has at a time",
    };
    ApiProblem::new(ProblemKind::WrongKind, format!("{name} is a {kind}: it {what}; nothing was changed"))
}
