//! `/app/{name}/lock`: only one client changes an app at a time.

use api_types::AppLockInput;
use axum::extract::State;
use axum::http::StatusCode;
use model::ids::{AppName, LockId};
use model::time::rfc3339;
use serde::Deserialize;
use store::{APP_LOCK_PERIOD, AppLockOutcome};
use utoipa::IntoParams;

use crate::http::body::JsonOrYaml;
use crate::http::params::{InPath, Params};
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;

const MAX_HOLDER: usize = 100;

/// Takes or renews the lock of an app.
///
/// It ends by itself 10 s later. The API refuses no write because of it: clients that change a whole app ask
/// for it first.
#[utoipa::path(
    put, path = "/app/{name}/lock", tag = "app", params(InPath<AppName>),
    request_body(description = "The client that asks", content(
        (AppLockInput = "application/json", example = json!({"id": "5cf3b8a1", "holder": "ann@laptop"})),
        (AppLockInput = "application/yaml", example = json!({"id": "5cf3b8a1", "holder": "ann@laptop"})),
    )),
    responses(
        (status = 204, description = "The client has the lock for 10 s more"),
        (status = 404, description = "There can be no app of this name"),
        (status = 409, description = "Another client has it"),
    )
)]
pub(crate) async fn lock_app(
    State(app): State<AppState>,
    InPath(name): InPath<AppName>,
    JsonOrYaml(AppLockInput { id, holder }): JsonOrYaml<AppLockInput>,
) -> Result<StatusCode, ApiProblem> {
    let holder: String = holder.chars().filter(|char| !char.is_control()).take(MAX_HOLDER).collect();
    match app.store.lock_app(&name, &id, &holder).await? {
        AppLockOutcome::Held => Ok(StatusCode::NO_CONTENT),
        AppLockOutcome::HeldBy { who, since } => {
            let who = if who.is_empty() { "another client" } else { &who };
            let detail = format!(
                "{who} has been changing app {name} since {}; a client that has died loses its lock after {APP_LOCK_PERIOD:?}",
                rfc3339(since),
            );
            Err(ApiProblem::new(ProblemKind::AppLocked, detail))
        }
    }
}

/// The client that releases a lock.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct UnlockOptions {
    /// The id with which it was taken.
    id: LockId,
}

/// Releases the lock of an app. That of another client stays.
#[utoipa::path(
    delete, path = "/app/{name}/lock", tag = "app", params(InPath<AppName>, UnlockOptions),
    responses(
        (status = 204, description = "The client does not have the lock any more"),
        (status = 404, description = "There can be no app of this name"),
    )
)]
pub(crate) async fn unlock_app(
    State(app): State<AppState>,
    InPath(name): InPath<AppName>,
    Params(UnlockOptions { id }): Params<UnlockOptions>,
) -> Result<StatusCode, ApiProblem> {
    app.store.unlock_app(&name, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
