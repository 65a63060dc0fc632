//! `/service`: what people want.

mod selection;
mod stored;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::header::IF_MATCH;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use common::ids::ServiceName;
use common::service::Service;
use common::spec::{DesiredService, ServiceInput};
use common::store::{PutMode, PutOutcome, ScaleOutcome, StoreError};
use futures_util::{StreamExt, TryStreamExt};
use serde_json::Value;

use self::selection::Selection;
use self::stored::{accepted, conflict, deleting, missing, stored, with_etag};
use crate::body::Posted;
use crate::census;
use crate::dto::{List, Problem, ScaleInput, ServiceView};
use crate::patch;
use crate::problem::{ApiProblem, Kind};
use crate::query::service_name;
use crate::state::App;
use crate::views;

/// Services whose status is counted at a time.
const AT_A_TIME: usize = 16;
/// How often a change is tried again when others change the same.
const TRIES: usize = 5;

/// Stores a new service and makes its pods.
#[utoipa::path(post, path = "/service", tag = "service", request_body(
    content((ServiceInput = "application/json"), (ServiceInput = "application/yaml"))
), responses(
    (status = 201, description = "Stored", body = ServiceView,
     headers(("Location" = String, description = "Where it is"))),
    (status = 202, description = "Stored, not yet confirmed by all replicas of Redis", body = ServiceView),
    (status = 400, description = "Not JSON or YAML, or not a service", body = Problem),
    (status = 409, description = "It exists, or is being deleted", body = Problem),
    (status = 413, description = "Larger than 1 MiB", body = Problem),
    (status = 415, description = "Neither JSON nor YAML", body = Problem),
    (status = 422, description = "Values that can not be meant", body = Problem),
    (status = 503, description = "Redis is away", body = Problem),
))]
pub(crate) async fn create(
    State(app): State<App>,
    Posted(input): Posted<ServiceInput>,
) -> Result<Response, ApiProblem> {
    let desired = input.normalize()?;
    let (outcome, made, written) = app.store.create_service(&desired).await?;
    accepted(&app, &desired.name, outcome, made, written).await
}

/// Lists services.
#[utoipa::path(get, path = "/service", tag = "service", params(
    ("label" = Option<String>, Query, description = "`key=value`; several narrow further"),
    ("limit" = Option<usize>, Query, description = "At most so many, 1000 unless said"),
    ("after" = Option<String>, Query, description = "The `next` of the page before"),
), responses(
    (status = 200, body = List<ServiceView>),
    (status = 400, description = "The query can not be read", body = Problem),
))]
pub(crate) async fn list(
    State(app): State<App>,
    query: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Result<Json<List<ServiceView>>, ApiProblem> {
    let Query(pairs) = query.map_err(|e| ApiProblem::new(Kind::InvalidQuery, e.body_text()))?;
    let selection = Selection::read(pairs)?;
    let mut found = selection.services(&app).await?;
    let next = (found.len() > selection.limit).then(|| {
        found.truncate(selection.limit);
        found.last().map(|service| service.name.to_string())
    });
    let store = &app.store;
    let items = futures_util::stream::iter(found.into_iter().map(|service| async move {
        let status = census::status(store, &service).await?;
        Ok::<_, StoreError>(views::service(service, status))
    }));
    let items = items.buffered(AT_A_TIME).try_collect().await?;
    Ok(Json(List { items, next: next.flatten() }))
}

/// Shows one service.
#[utoipa::path(get, path = "/service/{name}", tag = "service", responses(
    (status = 200, body = ServiceView, headers(("ETag" = String, description = "Its generation"))),
    (status = 404, body = Problem, description = "There is no such service"),
))]
pub(crate) async fn get(State(app): State<App>, Path(name): Path<String>) -> Result<Response, ApiProblem> {
    let name = service_name(name)?;
    let service = app.store.service(&name).await?.ok_or_else(|| missing(&name))?;
    let status = census::status(&app.store, &service).await?;
    Ok(with_etag(StatusCode::OK, views::service(service, status)))
}

/// Stores a service, new or not.
#[utoipa::path(put, path = "/service/{name}", tag = "service", params(
    ("If-Match" = Option<String>, Header, description = "The generation it must have, or `*`: it must exist"),
), request_body(
    content((ServiceInput = "application/json"), (ServiceInput = "application/yaml"))
), responses(
    (status = 200, description = "Changed, or was so already", body = ServiceView),
    (status = 201, description = "New", body = ServiceView),
    (status = 202, description = "Stored, not yet confirmed by all replicas of Redis", body = ServiceView),
    (status = 409, description = "It is being deleted", body = Problem),
    (status = 412, description = "It has another generation", body = Problem),
    (status = 422, description = "Values that can not be meant", body = Problem),
))]
pub(crate) async fn put(
    State(app): State<App>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Posted(input): Posted<ServiceInput>,
) -> Result<Response, ApiProblem> {
    let name = service_name(name)?;
    check_name(&name, &input)?;
    let desired = input.normalize()?;
    let (mode, expected) = match if_match(&headers)? {
        Condition::None => (PutMode::Upsert, None),
        Condition::Exists => (PutMode::Replace, None),
        Condition::Generation(generation) => (PutMode::Replace, Some(generation)),
    };
    let (outcome, written) = app.store.put_service(&desired, mode, expected).await?;
    if outcome == PutOutcome::Missing {
        let detail = format!("there is no service {name}, and If-Match says that there should be");
        return Err(ApiProblem::new(Kind::GenerationConflict, detail));
    }
    accepted(&app, &name, outcome, 0, written).await
}

/// Changes some fields of a service.
///
/// A JSON merge patch (RFC 7396) over what `PUT` would take.
#[utoipa::path(patch, path = "/service/{name}", tag = "service", params(
    ("If-Match" = Option<String>, Header, description = "The generation it must have"),
), request_body(content = Object, content_type = "application/merge-patch+json"), responses(
    (status = 200, description = "Changed, or was so already", body = ServiceView),
    (status = 202, description = "Stored, not yet confirmed by all replicas of Redis", body = ServiceView),
    (status = 404, description = "There is no such service", body = Problem),
    (status = 409, description = "It is being deleted", body = Problem),
    (status = 412, description = "It has another generation", body = Problem),
    (status = 422, description = "Values that can not be meant", body = Problem),
))]
pub(crate) async fn patch(
    State(app): State<App>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Posted(patch): Posted<Value>,
) -> Result<Response, ApiProblem> {
    let name = service_name(name)?;
    let condition = if_match(&headers)?;
    for _ in 0..TRIES {
        let service = app.store.service(&name).await?.ok_or_else(|| missing(&name))?;
        if let Condition::Generation(expected) = condition
            && expected != service.generation
        {
            return Err(conflict(&name, service.generation));
        }
        let desired = patched(&name, &service, &patch)?;
        let expected = Some(service.generation);
        match app.store.put_service(&desired, PutMode::Replace, expected).await? {
            // Somebody was faster: the patch means what is there now.
            (PutOutcome::Conflict { .. }, _) => {}
            (outcome, written) => return accepted(&app, &name, outcome, 0, written).await,
        }
    }
    Err(ApiProblem::new(Kind::ServiceBusy, format!("others keep changing service {name}; try again")))
}

/// Says that a service is not wanted any more. Its pods are stopped, then it is forgotten.
#[utoipa::path(delete, path = "/service/{name}", tag = "service", responses(
    (status = 202, description = "Its pods are being stopped", body = ServiceView),
    (status = 404, description = "There is no such service", body = Problem),
))]
pub(crate) async fn delete(State(app): State<App>, Path(name): Path<String>) -> Result<Response, ApiProblem> {
    let name = service_name(name)?;
    let (found, written) = app.store.delete_service(&name).await?;
    if !found {
        return Err(missing(&name));
    }
    let durability = app.note_write(&name, written);
    // It may be gone altogether by now.
    let Some(service) = app.store.service(&name).await? else {
        return Ok(StatusCode::ACCEPTED.into_response());
    };
    let status = census::status(&app.store, &service).await?;
    let mut view = views::service(service, status);
    view.durability = Some(durability);
    Ok((StatusCode::ACCEPTED, Json(view)).into_response())
}

/// Changes how many pods a service has, and nothing else.
#[utoipa::path(post, path = "/service/{name}/scale", tag = "service", request_body(
    content((ScaleInput = "application/json"), (ScaleInput = "application/yaml"))
), responses(
    (status = 200, description = "Stored", body = ServiceView),
    (status = 202, description = "Stored, not yet confirmed by all replicas of Redis", body = ServiceView),
    (status = 404, description = "There is no such service", body = Problem),
    (status = 409, description = "It is being deleted", body = Problem),
    (status = 422, description = "More than 2,000,000", body = Problem),
))]
pub(crate) async fn scale(
    State(app): State<App>,
    Path(name): Path<String>,
    Posted(ScaleInput { replicas }): Posted<ScaleInput>,
) -> Result<Response, ApiProblem> {
    let name = service_name(name)?;
    let most = common::spec::MAX_REPLICAS;
    if replicas > most {
        let detail = format!("at most {most} replicas");
        return Err(ApiProblem::new(Kind::InvalidService, &detail).at("/replicas", detail.clone()));
    }
    let (outcome, written) = app.store.scale_service(&name, replicas).await?;
    match outcome {
        ScaleOutcome::Scaled { .. } => stored(&app, &name, StatusCode::OK, written).await,
        ScaleOutcome::Missing => Err(missing(&name)),
        ScaleOutcome::Deleting => Err(deleting(&name)),
    }
}

fn patched(name: &ServiceName, service: &Service, patch: &Value) -> Result<DesiredService, ApiProblem> {
    let input = patch::apply(service, patch)?;
    check_name(name, &input)?;
    Ok(input.normalize()?)
}

fn check_name(name: &ServiceName, input: &ServiceInput) -> Result<(), ApiProblem> {
    if input.name == *name {
        return Ok(());
    }
    let detail = format!("is {}, and the path says {name}: a service can not be renamed", input.name);
    Err(ApiProblem::new(Kind::InvalidService, format!("/name {detail}")).at("/name", detail))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    None,
    Exists,
    Generation(u64),
}

fn if_match(headers: &HeaderMap) -> Result<Condition, ApiProblem> {
    let Some(header) = headers.get(IF_MATCH) else { return Ok(Condition::None) };
    let text = header.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(Condition::Exists);
    }
    let digits = text.trim_matches('"');
    digits
        .parse()
        .map(Condition::Generation)
        .map_err(|_| ApiProblem::new(Kind::BadRequest, "If-Match: write one generation such as \"3\", or *"))
}
