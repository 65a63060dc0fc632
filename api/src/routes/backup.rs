//! `/cluster/backup` and `/cluster/restore`: the cluster's state as lines of JSON.

use std::collections::VecDeque;

use api_types::RecoveryView;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use model::ids::{PodId, RegistryHost, ServiceName, ValueName};
use model::time::rfc3339;
use model::value::ValueKind;
use serde::Deserialize;
use store::saved_state::{
    InvalidState, SavedEnd, SavedFile, SavedHeader, SavedLine, SavedState, SavedValues,
};
use store::{Store, StoreError};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::admission::secret_keys::WorkerKeys;
use crate::cluster::recovery::{self, RestorePart};
use crate::http::body::read_bytes;
use crate::http::connections::ClientAddress;
use crate::http::params::Params;
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;

const LINES: &str = "application/x-ndjson";
const PODS_PER_READ: usize = 500;
const MAX_PART_BYTES: usize = 8 * 1024 * 1024;

/// Writes services, pods, assignments, secrets, configs and logins as lines of JSON, for `/cluster/restore`.
///
/// Secrets and passwords are encrypted as they are stored. A backup has the environments of the services,
/// which may be secrets. One without its last line is incomplete.
#[utoipa::path(get, path = "/cluster/backup", tag = "cluster", responses(
    (status = 200, description = "The backup", body = String, content_type = "application/x-ndjson"),
    (status = 409, description = "There is no cluster yet: no worker has registered"),
    (status = 429, description = "Too many streams are open"),
))]
pub(crate) async fn get_backup(
    State(app): State<AppState>,
    client: Option<Extension<ClientAddress>>,
) -> Result<Response, ApiProblem> {
    let guard = app.streams.begin(client.map(|Extension(client)| client))?;
    let Some(cluster) = app.store.cluster_id().await? else {
        let detail = "this Redis knows no cluster, so there is nothing to back up: no worker has registered";
        return Err(ApiProblem::new(ProblemKind::OtherCluster, detail));
    };
    let at = rfc3339(app.store.redis_now().await?);
    let volumes = app.store.backup_volumes().await?;
    let header =
        SavedHeader { at, nodes: app.store.nodes_with_volumes().await?, ..SavedHeader::new(cluster) };
    let mut values = VecDeque::new();
    for kind in [ValueKind::Secret, ValueKind::Config] {
        values.extend(app.store.value_names(kind).await?.into_iter().map(|name| (kind, name)));
    }
    let backup = Backup {
        volumes: SavedState { volumes, ..SavedState::default() },
        services: app.store.service_names().await?.into(),
        values,
        logins: app.store.registries().await?.into(),
        pushed: app.store.pushed_pods().await?,
        store: app.store.clone(),
        lines: 0,
        header: Some(header),
        has_state: false,
        is_ended: false,
    };
    let lines = futures_util::stream::try_unfold((backup, guard), |(mut backup, guard)| async move {
        let next = backup.next().await.inspect_err(|error| tracing::warn!(%error, "a backup ended early"))?;
        Ok::<_, StoreError>(next.map(|lines| (Bytes::from(lines), (backup, guard))))
    });
    Ok(([(CONTENT_TYPE, LINES)], Body::from_stream(lines)).into_response())
}

struct Backup {
    store: Store,
    /// Come first, so that a restore knows where data is before it creates pods.
    volumes: SavedState,
    services: VecDeque<ServiceName>,
    pushed: Vec<PodId>,
    values: VecDeque<(ValueKind, ValueName)>,
    logins: VecDeque<RegistryHost>,
    lines: usize,
    header: Option<SavedHeader>,
    has_state: bool,
    is_ended: bool,
}

impl Backup {
    async fn next(&mut self) -> Result<Option<String>, StoreError> {
        if let Some(header) = self.header.take() {
            let volumes = std::mem::take(&mut self.volumes);
            return Ok(Some(SavedLine::Header(header).to_json() + "\n" + &self.add(volumes.lines())));
        }
        while let Some(name) = self.services.pop_front() {
            if let Some(state) = self.store.backup_service(&name).await? {
                return Ok(Some(self.add(state.lines())));
            }
        }
        if !self.pushed.is_empty() {
            let later = self.pushed.split_off(self.pushed.len().min(PODS_PER_READ));
            let state = self.store.backup_pods(&std::mem::replace(&mut self.pushed, later)).await?;
            return Ok(Some(self.add(state.lines())));
        }
        if !std::mem::replace(&mut self.has_state, true) {
            let more = !self.values.is_empty() || !self.logins.is_empty();
            self.is_ended = !more;
            return Ok(Some(self.end(more)));
        }
        if let Some(line) = self.next_value().await? {
            return Ok(Some(self.add(std::iter::once(line.to_json()))));
        }
        if std::mem::replace(&mut self.is_ended, true) {
            return Ok(None);
        }
        Ok(Some(self.end(false)))
    }

    async fn next_value(&mut self) -> Result<Option<SavedLine>, StoreError> {
        while let Some((kind, name)) = self.values.pop_front() {
            if let Some(value) = self.store.backup_value(kind, &name).await? {
                return Ok(Some(SavedLine::Value(value)));
            }
        }
        while let Some(host) = self.logins.pop_front() {
            if let Some(login) = self.store.backup_login(&host).await? {
                return Ok(Some(SavedLine::Login(login)));
            }
        }
        Ok(None)
    }

    fn end(&mut self, more: bool) -> String {
        let lines = std::mem::take(&mut self.lines);
        SavedLine::End(SavedEnd { lines, unsaved: 0, more }).to_json() + "\n"
    }

    fn add(&mut self, lines: impl Iterator<Item = String>) -> String {
        let mut text = String::new();
        for line in lines {
            self.lines += 1;
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

/// The parts of a backup to restore.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RestoreOptions {
    /// Whether missing objects are written. Otherwise nothing is changed.
    #[param(default = false)]
    apply: Option<bool>,
    /// The part to write: of all parts of a backup first the `values`, then the `pods`, then the `services`,
    /// then the `cluster`.
    #[param(inline)]
    part: RestorePart,
    /// Whether services are restored as well that were deleted after the backup.
    #[param(default = false)]
    deleted: Option<bool>,
}

/// Restores a part of a backup. Objects that Redis has stay; missing ones are written.
///
/// The body is a part of a backup with a first and a last line of its own, and with the service and the
/// specifications of each pod in it. `kubeleet restore` splits a backup into parts.
#[utoipa::path(post, path = "/cluster/restore", tag = "cluster", params(RestoreOptions),
    request_body(content = String, content_type = "application/x-ndjson", description = "Lines of a backup"),
    responses(
        (status = 200, description = "The missing objects, and whether they were restored", body = RecoveryView),
        (status = 409, description = "This Redis is of another cluster"),
        (status = 413, description = "The part is larger than 8 MiB"),
        (status = 507, description = "Redis has no memory left for the restore"),
    )
)]
pub(crate) async fn restore_backup(
    State(app): State<AppState>,
    Params(options): Params<RestoreOptions>,
    request: Request,
) -> Result<Json<RecoveryView>, ApiProblem> {
    let body = read_bytes(request, &app, "a part of a backup is at most 8 MiB").await?;
    let text = std::str::from_utf8(&body).unwrap_or_default();
    let malformed = |why: InvalidState| {
        ApiProblem::new(ProblemKind::MalformedBody, format!("this is not a backup: {why}"))
    };
    let apply = options.apply == Some(true);
    if options.part == RestorePart::Values {
        let saved = SavedValues::read(text.lines()).map_err(malformed)?;
        let keys = WorkerKeys::of(&app.nodes().await, app.config.secret_key.as_ref());
        return Ok(Json(recovery::restore_values(&app.store, &keys, saved, apply).await?));
    }
    let file = SavedFile::read(text.lines()).map_err(malformed)?;
    Ok(Json(recovery::restore(&app.store, file, options.part, options.deleted == Some(true), apply).await?))
}

pub(super) fn restore_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(restore_backup)).layer(DefaultBodyLimit::max(MAX_PART_BYTES))
}
