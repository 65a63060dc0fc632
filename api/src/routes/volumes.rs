//! `/volume`: the data of services, and on which node it is.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use common::api::{List, VolumeView, rfc3339};
use common::ids::{ServiceName, VolumeName};
use common::service::{Service, ServiceState};
use common::spec::VolumeKind;
use common::store::RemoveVolumeOutcome;
use common::volume::{Volume, VolumeScope};

use crate::params::{InPath, Paging, Params, page_of};
use crate::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;

/// Lists persistent and shared volumes, also those whose service is gone.
#[utoipa::path(get, path = "/volume", tag = "volume", params(Paging), responses(
    (status = 200, description = "Volumes by name", body = List<VolumeView>),
))]
pub(crate) async fn list_volumes(
    State(app): State<AppState>,
    Params(paging): Params<Paging>,
) -> Result<Json<List<VolumeView>>, ApiProblem> {
    let (names, next) = page_of(app.store.volume_names().await?, &paging)?;
    let volumes = app.store.volumes_each(&names).await?;
    // A volume whose record cannot be read is left out.
    let volumes = volumes.into_iter().filter_map(|volume| volume.ok().flatten()).collect();
    Ok(Json(List { items: views_of(&app, volumes).await?, next }))
}

/// Shows one persistent or shared volume.
#[utoipa::path(get, path = "/volume/{name}", tag = "volume", params(InPath<VolumeName>), responses(
    (status = 200, description = "The volume", body = VolumeView),
    (status = 404, description = "There is no such volume"),
))]
pub(crate) async fn get_volume(
    State(app): State<AppState>,
    InPath(name): InPath<VolumeName>,
) -> Result<Json<VolumeView>, ApiProblem> {
    let volume = app.store.volume(&name).await?.ok_or_else(|| not_found(&name))?;
    views_of(&app, vec![volume]).await?.pop().map(Json).ok_or_else(|| not_found(&name))
}

/// Removes a persistent or shared volume with its data, unless a service uses it.
///
/// Its node removes the data; of a shared volume, one that has the shared directory. While that node is down,
/// the volume stays in the state `removing`. Asking again asks another node, if the volume is shared.
#[utoipa::path(delete, path = "/volume/{name}", tag = "volume", params(InPath<VolumeName>), responses(
    (status = 202, description = "Its node removes the data"),
    (status = 204, description = "Removed: its node is not in the cluster any more"),
    (status = 404, description = "There is no such volume"),
    (status = 409, description = "A service uses it, or no node with the shared directory is alive"),
))]
pub(crate) async fn remove_volume(
    State(app): State<AppState>,
    InPath(name): InPath<VolumeName>,
) -> Result<StatusCode, ApiProblem> {
    match app.store.remove_volume(&name).await? {
        RemoveVolumeOutcome::Removing => Ok(StatusCode::ACCEPTED),
        RemoveVolumeOutcome::Removed => Ok(StatusCode::NO_CONTENT),
        RemoveVolumeOutcome::Missing => Err(not_found(&name)),
        RemoveVolumeOutcome::Used => Err(ApiProblem::new(
            ProblemKind::VolumeInUse,
            format!(
                "volume {name} is used by a service, or belongs to a replica that it wants: scale the service down \
                 or delete it, wait until the pod is gone, and try again"
            ),
        )),
        RemoveVolumeOutcome::NoNode => Err(ApiProblem::new(
            ProblemKind::VolumeInUse,
            format!(
                "volume {name} is in the directory that nodes share, and no node that has it is alive: start a worker \
                 with KUBELEET_SHARED_VOLUMES_DIR, or see in `kubeleet node ls -o wide` why it is not ready"
            ),
        )),
    }
}

async fn views_of(app: &AppState, volumes: Vec<Volume>) -> Result<Vec<VolumeView>, ApiProblem> {
    // The services of an app are found by their records.
    let mut names: Vec<ServiceName> = if volumes.iter().any(|volume| volume.claim.scope == VolumeScope::App) {
        app.store.service_names().await?
    } else {
        volumes.iter().map(|volume| volume.claim.service.clone()).collect()
    };
    names.sort();
    names.dedup();
    let (services, _broken) = app.store.services_each(&names).await?;
    let by_name: HashMap<&ServiceName, &Service> =
        services.iter().map(|service| (&service.name, service)).collect();
    let uses = |volume: &Volume, service: &Service| {
        service.state != ServiceState::Deleting
            && volume.claim.scope.replica().unwrap_or(0) < service.replicas
            && service.has_volume(&volume.claim)
    };
    let is_used = |volume: &Volume| match volume.claim.scope {
        VolumeScope::App => services.iter().any(|service| uses(volume, service)),
        VolumeScope::Replica(_) | VolumeScope::Service => {
            by_name.get(&volume.claim.service).is_some_and(|service| uses(volume, service))
        }
    };
    Ok(volumes.into_iter().map(|volume| view(is_used(&volume), volume)).collect())
}

fn view(in_use: bool, volume: Volume) -> VolumeView {
    let claim = volume.claim;
    VolumeView {
        name: claim.name,
        kind: if claim.scope.is_shared() { VolumeKind::Shared } else { VolumeKind::Persistent },
        service: claim.service,
        source: claim.source,
        replica: claim.scope.replica(),
        node: volume.node,
        engine_id: volume.engine_id,
        state: volume.state,
        in_use,
        space: claim.space,
        used: volume.used,
        problem: volume.over,
        created_at: rfc3339(volume.created_at),
    }
}

fn not_found(name: &VolumeName) -> ApiProblem {
    let detail = format!("there is no volume {name}: GET /volume lists them");
    ApiProblem::new(ProblemKind::VolumeNotFound, detail)
}
