//! `/registry`: logins for images. No answer, problem or log line contains a password.

use api_types::{List, RegistryInput, RegistryView};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use model::ids::RegistryHost;
use model::value::registry::{LoginVerdict, RegistryInfo, RegistryLogin, StoredLogin, check_login};
use store::{PutLoginOutcome, RedisKey};

use crate::admission::growth::Growth;
use crate::admission::login_check;
use crate::admission::users::{ForceOption, UsedObject, check_unused};
use crate::http::body::JsonOrYaml;
use crate::http::params::{InPath, Paging, Params, page_of};
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::{AppState, durability_view, status_of};

/// Lists the registries with a login, without passwords.
#[utoipa::path(get, path = "/registry", tag = "registry", params(Paging), responses(
    (status = 200, description = "The registries by host", body = List<RegistryView>),
))]
pub(crate) async fn list_registries(
    State(app): State<AppState>,
    Params(paging): Params<Paging>,
) -> Result<Json<List<RegistryView>>, ApiProblem> {
    let (hosts, next) = page_of(app.store.registries().await?, &paging)?;
    let infos = app.store.registry_infos(&hosts).await?.found();
    let items = infos.into_iter().map(RegistryView::from).collect();
    Ok(Json(List { items, next }))
}

/// Shows who pulls from a registry, without the password.
#[utoipa::path(get, path = "/registry/{host}", tag = "registry", params(InPath<RegistryHost>), responses(
    (status = 200, description = "The login", body = RegistryView),
    (status = 404, description = "There is no login for this registry"),
))]
pub(crate) async fn get_registry(
    State(app): State<AppState>,
    InPath(host): InPath<RegistryHost>,
) -> Result<Json<RegistryView>, ApiProblem> {
    Ok(Json(read(&app, &host).await?.into()))
}

/// Stores the user and password for a registry, in the place of the ones before.
///
/// The next pull of each worker uses them. The password is stored encrypted. A node asks the registry first;
/// what it refuses is not stored. If it cannot be asked, `warning` of the answer says so.
#[utoipa::path(
    put, path = "/registry/{host}", tag = "registry", params(InPath<RegistryHost>),
    request_body(description = "The user and the password or token", content(
        (RegistryInput = "application/json", example = json!({"user": "bob", "password": "…"})),
        (RegistryInput = "application/yaml", example = json!({"user": "bob", "password": "…"})),
    )),
    responses(
        (status = 200, description = "Stored", body = RegistryView),
        (status = 202, description = "Stored, not yet confirmed by all replicas of Redis", body = RegistryView),
        (status = 403, description = "The cluster has as many logins as its settings allow"),
        (status = 404, description = "There can be no registry of this name"),
        (status = 409, description = "This API has no key, or another one than the workers"),
        (status = 422, description = "The registry refuses this user and password, or none can accept them"),
        (status = 507, description = "Redis is too full to add this"),
    ),
)]
pub(crate) async fn put_registry(
    State(app): State<AppState>,
    InPath(host): InPath<RegistryHost>,
    JsonOrYaml(input): JsonOrYaml<RegistryInput>,
) -> Result<Response, ApiProblem> {
    check_login(&input.user, &input.password)
        .map_err(|problem| ApiProblem::new(ProblemKind::InvalidValue, problem))?;
    let key = app.encryption_key().await?;
    app.admit(Growth::of_value(input.password.expose().len())).await?;
    let login = RegistryLogin { user: input.user, password: input.password };
    let sealed = StoredLogin::seal(host.clone(), &login, key).map_err(|problem| {
        tracing::error!(%host, problem, "a password cannot be encrypted");
        ApiProblem::internal()
    })?;
    let warning = match login_check::verdict(&app, &sealed, key).await {
        LoginVerdict::Accepted => None,
        LoginVerdict::Denied(why) => {
            let detail = format!("{host} refuses this user and password, so nothing was stored: {why}");
            return Err(ApiProblem::new(ProblemKind::InvalidValue, detail));
        }
        LoginVerdict::Unknown(why) => {
            Some(format!("whether {host} accepts this user and password was not checked: {why}"))
        }
    };
    let (outcome, durability) = app.store.put_login(&sealed, app.config.growth.max_secrets).await?;
    if let PutLoginOutcome::Full { count } = outcome {
        let detail = format!(
            "the cluster has logins for {count} registries, as many as are allowed: delete some, or raise \
             KUBELEET_CLUSTER_MAX_SECRETS of the API"
        );
        return Err(ApiProblem::new(ProblemKind::ClusterLimit, detail));
    }
    let durability = durability_view(durability);
    let status = status_of(&durability, StatusCode::OK);
    let view = RegistryView { durability: Some(durability), warning, ..read(&app, &host).await?.into() };
    Ok((status, Json(view)).into_response())
}

/// Deletes the user and password for a registry. Images that nodes have stay there.
///
/// A login that services pull with is only deleted with `force`.
#[utoipa::path(delete, path = "/registry/{host}", tag = "registry", params(InPath<RegistryHost>, ForceOption), responses(
    (status = 204, description = "The login was deleted"),
    (status = 404, description = "There is no login for this registry"),
    (status = 409, description = "Services have images of this registry"),
))]
pub(crate) async fn delete_registry(
    State(app): State<AppState>,
    InPath(host): InPath<RegistryHost>,
    Params(options): Params<ForceOption>,
) -> Result<StatusCode, ApiProblem> {
    check_unused(&app, UsedObject::Login(&host), &options).await?;
    match app.store.delete_login(&host).await? {
        (true, _) => Ok(StatusCode::NO_CONTENT),
        (false, _) => Err(not_found(&host)),
    }
}

async fn read(app: &AppState, host: &RegistryHost) -> Result<RegistryInfo, ApiProblem> {
    let info = app.store.registry_info(host).await;
    let info = info.map_err(|error| ApiProblem::of_key(error, RedisKey::Registry(host)))?;
    info.ok_or_else(|| not_found(host))
}

fn not_found(host: &RegistryHost) -> ApiProblem {
    let detail =
        format!("there is no login for {host}: PUT /registry/{host} stores one, and GET /registry lists all");
    ApiProblem::new(ProblemKind::RegistryNotFound, detail)
}
