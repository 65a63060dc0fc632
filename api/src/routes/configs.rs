//! `/config`: values stored unencrypted.

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

/// Creates a config: its first version.
#[utoipa::path(post, path = "/config", tag = "config", request_body(description = "The config", content(
    (ValueInput = "application/json", example = json!({"name": "app.conf", "value": "…"})),
    (ValueInput = "application/yaml", example = json!({"name": "app.conf", "value": "…"})),
)), responses(
    (status = 201, description = "Created", body = ValueView, headers(
        ("Location" = String, description = "The path of the config"),
    )),
    (status = 202, description = "Created, not yet confirmed by all replicas of Redis", body = ValueView, headers(
        ("Location" = String, description = "The path of the config"),
    )),
    (status = 403, description = "The cluster has as many configs as its settings allow"),
    (status = 409, description = "The config exists"),
    (status = 422, description = "It has no content, or too much"),
    (status = 507, description = "Redis is too full to add this"),
))]
pub(crate) async fn create_config(
    State(app): State<AppState>,
    JsonOrYaml(input): JsonOrYaml<ValueInput>,
) -> Result<Response, ApiProblem> {
    values::create(&app, ValueKind::Config, input).await
}

/// Lists configs, without their contents.
#[utoipa::path(get, path = "/config", tag = "config", params(Paging), responses(
    (status = 200, description = "The configs by name", body = List<ValueView>),
))]
pub(crate) async fn list_configs(
    State(app): State<AppState>,
    Params(paging): Params<Paging>,
) -> Result<Json<List<ValueView>>, ApiProblem> {
    values::list(&app, ValueKind::Config, paging).await
}

/// Shows one config, without its content.
#[utoipa::path(get, path = "/config/{name}", tag = "config", params(InPath<ValueName>), responses(
    (status = 200, description = "The config", body = ValueView),
    (status = 404, description = "There is no such config"),
))]
pub(crate) async fn get_config(
    State(app): State<AppState>,
    InPath(name): InPath<ValueName>,
) -> Result<Json<ValueView>, ApiProblem> {
    values::get(&app, ValueKind::Config, &name).await
}

/// Stores the next version of a config. Pods that start from then on get it.
#[utoipa::path(
    put, path = "/config/{name}", tag = "config", params(InPath<ValueName>),
    request_body(description = "The content; `name`, if there is one, must be the name in the path", content(
        (ValueInput = "application/json", example = json!({"value": "…"})),
        (ValueInput = "application/yaml", example = json!({"value": "…"})),
    )),
    responses(
        (status = 200, description = "Stored", body = ValueView, headers(
            ("Location" = String, description = "The path of the config"),
        )),
        (status = 202, description = "Stored, not yet confirmed by all replicas of Redis", body = ValueView, headers(
            ("Location" = String, description = "The path of the config"),
        )),
        (status = 403, description = "The cluster has as many configs as its settings allow"),
        (status = 404, description = "There is no such config"),
        (status = 409, description = "Others keep changing it"),
        (status = 422, description = "It has no content, or too much"),
        (status = 507, description = "Redis is too full to add this"),
    ),
)]
pub(crate) async fn rotate_config(
    State(app): State<AppState>,
    InPath(name): InPath<ValueName>,
    JsonOrYaml(input): JsonOrYaml<ValueInput>,
) -> Result<Response, ApiProblem> {
    values::rotate(&app, ValueKind::Config, &name, input).await
}

/// Compares a content with that of the current version of a config, which is not shown.
#[utoipa::path(
    post, path = "/config/{name}/compare", tag = "config", params(InPath<ValueName>),
    request_body(description = "The content to compare with", content(
        (ValueInput = "application/json", example = json!({"value": "…"})),
        (ValueInput = "application/yaml", example = json!({"value": "…"})),
    )),
    responses(
        (status = 200, description = "Whether they are the same", body = ValueComparison),
        (status = 404, description = "There is no such config"),
        (status = 422, description = "The content is empty, or too large"),
    ),
)]
pub(crate) async fn compare_config(
    State(app): State<AppState>,
    InPath(name): InPath<ValueName>,
    JsonOrYaml(input): JsonOrYaml<ValueInput>,
) -> Result<Json<ValueComparison>, ApiProblem> {
    values::compare(&app, ValueKind::Config, &name, input).await
}

/// Deletes a config with all its versions. Containers that run keep their files.
///
/// One that a service uses is only deleted with `force`: its next pods would wait for it.
#[utoipa::path(delete, path = "/config/{name}", tag = "config", params(InPath<ValueName>, ForceOption), responses(
    (status = 204, description = "The config was deleted"),
    (status = 404, description = "There is no such config"),
    (status = 409, description = "Services use the config"),
))]
pub(crate) async fn delete_config(
    State(app): State<AppState>,
    InPath(name): InPath<ValueName>,
    Params(options): Params<ForceOption>,
) -> Result<StatusCode, ApiProblem> {
    values::delete(&app, ValueKind::Config, &name, &options).await
}
