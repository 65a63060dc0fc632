//! Common parts of `/secret` and `/config`. No answer, problem or log line contains any content.

use api_types::{List, ValueComparison, ValueInput, ValueView};
use axum::Json;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use bytesize::ByteSize;
use model::ids::{AppName, ValueName};
use model::value::secret_key::SecretKey;
use model::value::{MAX_VALUE_BYTES, StoredValue, ValueBytes, ValueInfo, ValueKind};
use store::{Durability, PutValueOutcome, RedisKey};

use crate::admission::growth::Growth;
use crate::admission::users::{ForceOption, UsedObject, check_unused};
use crate::http::params::{Paging, page_of};
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::{AppState, durability_view, status_of};

const MAX_ATTEMPTS: usize = 5;

pub(super) async fn create(
    app: &AppState,
    kind: ValueKind,
    input: ValueInput,
) -> Result<Response, ApiProblem> {
    let Some(name) = input.name.clone() else {
        let problem = ApiProblem::new(ProblemKind::InvalidValue, format!("the {kind} has no name"));
        return Err(problem.at("/name", "missing"));
    };
    let of_app = input.app.clone();
    let content = content_of(kind, input)?;
    match put(app, kind, &name, 1, &content, of_app.as_ref()).await? {
        (PutValueOutcome::Stored, durability) => written(app, kind, &name, 1, durability).await,
        (PutValueOutcome::Same | PutValueOutcome::Conflict { .. }, _) => Err(ApiProblem::new(
            ProblemKind::ValueExists,
            format!("the {kind} {name} exists: PUT /{kind}/{name} stores its next version"),
        )),
        (PutValueOutcome::Full { count }, _) => Err(full(kind, count)),
        (PutValueOutcome::OtherApp { owner }, _) => Err(other_app(kind, &name, owner.as_ref())),
    }
}

pub(super) async fn rotate(
    app: &AppState,
    kind: ValueKind,
    name: &ValueName,
    input: ValueInput,
) -> Result<Response, ApiProblem> {
    if let Some(other) = input.name.as_ref().filter(|other| *other != name) {
        let detail =
            format!("the body names {other}, and the path {name}: write the same name, or none in the body");
        return Err(
            ApiProblem::new(ProblemKind::InvalidValue, detail).at("/name", "not the name in the path")
        );
    }
    let of_app = input.app.clone();
    let content = content_of(kind, input)?;
    for _ in 0..MAX_ATTEMPTS {
        let ValueInfo { version, .. } = read(app, kind, name).await?;
        if is_current(app, kind, name, &content).await? {
            return Ok(Json(ValueView::from(read(app, kind, name).await?)).into_response());
        }
        let next = version.saturating_add(1);
        match put(app, kind, name, next, &content, of_app.as_ref()).await? {
            (PutValueOutcome::Stored | PutValueOutcome::Same, durability) => {
                return written(app, kind, name, next, durability).await;
            }
            (PutValueOutcome::Conflict { .. }, _) => {}
            (PutValueOutcome::Full { count }, _) => return Err(full(kind, count)),
            (PutValueOutcome::OtherApp { owner }, _) => return Err(other_app(kind, name, owner.as_ref())),
        }
    }
    let detail = format!("others keep rotating the {kind} {name}: try again");
    Err(ApiProblem::new(ProblemKind::ConcurrentModification, detail))
}

pub(super) async fn list(
    app: &AppState,
    kind: ValueKind,
    paging: Paging,
) -> Result<Json<List<ValueView>>, ApiProblem> {
    let (names, next) = page_of(app.store.value_names(kind).await?, &paging)?;
    let infos = app.store.value_infos(kind, &names).await?.found();
    let items = infos.into_iter().map(ValueView::from).collect();
    Ok(Json(List { items, next }))
}

pub(super) async fn get(
    app: &AppState,
    kind: ValueKind,
    name: &ValueName,
) -> Result<Json<ValueView>, ApiProblem> {
    Ok(Json(read(app, kind, name).await?.into()))
}

pub(super) async fn compare(
    app: &AppState,
    kind: ValueKind,
    name: &ValueName,
    input: ValueInput,
) -> Result<Json<ValueComparison>, ApiProblem> {
    let content = content_of(kind, input)?;
    let key = key(app, kind)?;
    let current = app.store.current_value(kind, name).await;
    let current = current.map_err(|error| ApiProblem::of_key(error, RedisKey::Value(kind, name)))?;
    let current = current.ok_or_else(|| not_found(kind, name))?;
    // A value under a different key counts as different: it must be stored again.
    let same = current.open(key).is_ok_and(|stored| stored == content);
    Ok(Json(ValueComparison { name: name.clone(), version: current.version(), same }))
}

pub(super) async fn delete(
    app: &AppState,
    kind: ValueKind,
    name: &ValueName,
    options: &ForceOption,
) -> Result<StatusCode, ApiProblem> {
    check_unused(app, UsedObject::Value(kind, name), options).await?;
    match app.store.delete_value(kind, name).await? {
        (true, _) => Ok(StatusCode::NO_CONTENT),
        (false, _) => Err(not_found(kind, name)),
    }
}

pub(crate) fn not_found(kind: ValueKind, name: &ValueName) -> ApiProblem {
    let detail = format!("there is no {kind} {name}: POST /{kind} creates it, and GET /{kind} lists all");
    ApiProblem::new(ProblemKind::ValueNotFound, detail)
}

async fn read(app: &AppState, kind: ValueKind, name: &ValueName) -> Result<ValueInfo, ApiProblem> {
    let info = app.store.value_info(kind, name).await;
    let info = info.map_err(|error| ApiProblem::of_key(error, RedisKey::Value(kind, name)))?;
    info.ok_or_else(|| not_found(kind, name))
}

/// Then no pod needs to be replaced. An undecryptable version counts as different.
async fn is_current(
    app: &AppState,
    kind: ValueKind,
    name: &ValueName,
    content: &ValueBytes,
) -> Result<bool, ApiProblem> {
    let stored = app.store.current_value(kind, name).await?;
    let current = stored.and_then(|stored| stored.open(app.config.secret_key.as_ref()).ok());
    Ok(current.as_ref() == Some(content))
}

async fn put(
    app: &AppState,
    kind: ValueKind,
    name: &ValueName,
    version: u64,
    content: &ValueBytes,
    of_app: Option<&AppName>,
) -> Result<(PutValueOutcome, Durability), ApiProblem> {
    let key = match kind {
        ValueKind::Secret => Some(app.encryption_key().await?),
        ValueKind::Config => None,
    };
    app.admit(Growth::of_value(content.expose().len())).await?;
    let sealed = StoredValue::seal(kind, name.clone(), version, content, key).map_err(|problem| {
        tracing::error!(%kind, %name, problem, "a value cannot be encrypted");
        ApiProblem::internal()
    })?;
    Ok(app.store.put_value(&sealed, app.config.growth.max_secrets, of_app).await?)
}

fn key(app: &AppState, kind: ValueKind) -> Result<Option<&SecretKey>, ApiProblem> {
    let key = app.config.secret_key.as_ref();
    if kind == ValueKind::Secret && key.is_none() {
        return Err(ApiProblem::no_secret_key());
    }
    Ok(key)
}

fn other_app(kind: ValueKind, name: &ValueName, owner: Option<&AppName>) -> ApiProblem {
    let owner = owner.map_or_else(|| "no app".to_owned(), |owner| format!("app {owner}"));
    let detail = format!("the {kind} {name} belongs to {owner}: give it another name, or delete it first");
    ApiProblem::new(ProblemKind::ValueExists, detail)
}

fn content_of(kind: ValueKind, input: ValueInput) -> Result<ValueBytes, ApiProblem> {
    let invalid = |detail: String| ApiProblem::new(ProblemKind::InvalidValue, detail);
    let content = input.content().map_err(|problem| invalid(problem.to_owned()))?;
    match content.expose().len() {
        0 => Err(invalid(format!("the {kind} is empty"))),
        bytes if bytes > MAX_VALUE_BYTES => Err(invalid(format!(
            "the {kind} has {bytes} bytes, and at most {MAX_VALUE_BYTES} ({}) are allowed: give pods large files as a \
             volume or in their image",
            ByteSize(MAX_VALUE_BYTES as u64).display().iec(),
        ))),
        _ => Ok(content),
    }
}

fn full(kind: ValueKind, count: u64) -> ApiProblem {
    let detail = format!(
        "the cluster has {count} {kind}s, as many as are allowed: delete some, or raise \
         KUBELEET_CLUSTER_MAX_SECRETS of the API"
    );
    ApiProblem::new(ProblemKind::ClusterLimit, detail)
}

async fn written(
    app: &AppState,
    kind: ValueKind,
    name: &ValueName,
    version: u64,
    durability: Durability,
) -> Result<Response, ApiProblem> {
    let durability = durability_view(durability);
    let confirmed = if version == 1 { StatusCode::CREATED } else { StatusCode::OK };
    let status = status_of(&durability, confirmed);
    let view = ValueView { version, durability: Some(durability), ..read(app, kind, name).await?.into() };
    let location = [(LOCATION, format!("/{kind}/{name}"))];
    Ok((status, location, Json(view)).into_response())
}
