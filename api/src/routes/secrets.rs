//! `/secret`: values stored encrypted.

use api_types::{List, ValueComparison, ValueInput, ValueView};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use model::ids::ValueName;
use model::value::ValueKind;

use super::values;
use crate::admission::users::ForceOption;
use crate::http::body::JsonOrYaml;
use crate::http::params::{InPath, Paging, Params};
use crate::http::problem::ApiProblem;
use crate::state::AppState;

/// Creates a secret: its first version.
#[utoipa::path(post, path = "/secret", tag = "secret", request_body(description = "The secret", content(
    (ValueInput = "application/json", example = json!({"name": "db_password", "value": "…"})),
    (ValueInput = "application/yaml", example = json!({"name": "db_password", "value": "…"})),
)), responses(
    (status = 201, description = "Created", body = ValueView, headers(
        ("Location" = String, description = "The path of the secret"),
    )),
    (status = 202, description = "Created, not yet confirmed by all replicas of Redis", body = ValueView, headers(
        ("Location" = String, description = "The path of the secret"),
    )),
    (status = 403, description = "The cluster has as many secrets as its settings allow"),
    (status = 409, description = "The secret exists, or this API has no key"),
    (status = 422, description = "It has no content, or too much"),
    (status = 507, description = "Redis is too full to add this"),
))]
pub(crate) async fn create_secret(
    State(app): State<AppState>,
    JsonOrYaml(input): JsonOrYaml<ValueInput>,
) -> Result<Response, ApiProblem> {
    values::create(&app, ValueKind::Secret, input).await
}

/// Lists secrets, without their contents.
#[utoipa::path(get, path = "/secret", tag = "secret", params(Paging), responses(
    (status = 200, description = "The secrets by name", body = List<ValueView>),
))]
pub(crate) async fn list_secrets(
    State(app): State<AppState>,
    Params(paging): Params<Paging>,
) -> Result<Json<List<ValueView>>, ApiProblem> {
    values::list(&app, ValueKind::Secret, paging).await
}

/// Shows one secret, without its content.
#[utoipa::path(get, path = "/secret/{name}", tag = "secret", params(InPath<ValueName>), responses(
    (status = 200, description = "The secret", body = ValueView),
    (status = 404, description = "There is no such secret"),
))]
pub(crate) async fn get_secret(
    State(app): State<AppState>,
    InPath(name): InPath<ValueName>,
) -> Result<Json<ValueView>, ApiProblem> {
    values::get(&app, ValueKind::Secret, &name).await
}

/// Stores the next version of a secret. Pods that start from then on get it.
#[utoipa::path(
    put, path = "/secret/{name}", tag = "secret", params(InPath<ValueName>),
    request_body(description = "The content; `name`, if there is one, must be the name in the path", content(
        (ValueInput = "application/json", example = json!({"value": "…"})),
        (ValueInput = "application/yaml", example = json!({"value": "…"})),
    )),
    responses(
        (status = 200, description = "Stored", body = ValueView, headers(
            ("Location" = String, description = "The path of the secret"),
        )),
        (status = 202, description = "Stored, not yet confirmed by all replicas of Redis", body = ValueView, headers(
            ("Location" = String, description = "The path of the secret"),
        )),
        (status = 403, description = "The cluster has as many secrets as its settings allow"),
        (status = 404, description = "There is no such secret"),
        (status = 409, description = "Others keep changing it, or this API has no key"),
        (status = 422, description = "It has no content, or too much"),
        (status = 507, description = "Redis is too full to add this"),
    ),
)]
pub(crate) async fn rotate_secret(
    State(app): State<AppState>,
    InPath(name): InPath<ValueName>,
    JsonOrYaml(input): JsonOrYaml<ValueInput>,
) -> Result<Response, ApiProblem> {
    values::rotate(&app, ValueKind::Secret, &name, input).await
}

/// Compares a content with that of the current version of a secret, which is not shown.
#[utoipa::path(
    post, path = "/secret/{name}/compare", tag = "secret", params(InPath<ValueName>),
    request_body(description = "The content to compare with", content(
        (ValueInput = "application/json", example = json!({"value": "…"})),
        (ValueInput = "application/yaml", example = json!({"value": "…"})),
    )),
    responses(
        (status = 200, description = "Whether they are the same", body = ValueComparison),
        (status = 404, description = "There is no such secret"),
        (status = 409, description = "This API has no key"),
        (status = 422, description = "The content is empty, or too large"),
    ),
)]
pub(crate) async fn compare_secret(
    State(app): State<AppState>,
    InPath(name): InPath<ValueName>,
    JsonOrYaml(input): JsonOrYaml<ValueInput>,
) -> Result<Json<ValueComparison>, ApiProblem> {
    values::compare(&app, ValueKind::Secret, &name, input).await
}

/// Deletes a secret with all its versions. Containers that run keep their files.
///
/// One that a service uses is only deleted with `force`: its next pods would wait for it.
#[utoipa::path(delete, path = "/secret/{name}", tag = "secret", params(InPath<ValueName>, ForceOption), responses(
    (status = 204, description = "The secret was deleted"),
    (status = 404, description = "There is no such secret"),
    (status = 409, description = "Services use the secret"),
))]
pub(crate) async fn delete_secret(
    State(app): State<AppState>,
    InPath(name): InPath<ValueName>,
    Params(options): Params<ForceOption>,
) -> Result<StatusCode, ApiProblem> {
    values::delete(&app, ValueKind::Secret, &name, &options).await
}
