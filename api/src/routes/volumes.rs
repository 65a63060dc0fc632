//! `/volume`: the data of services, and on which node it is.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use common::api::{List, VolumeView, rfc3339};
use common::ids::{ServiceName, VolumeName};
use common::service::{Service, ServiceState};
use common::store::RemoveVolumeOutcome;
use common::volume::Volume;

use crate::params::{InPath, Paging, Params, page_size};
use crate::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;

/// Lists persistent volumes, also those whose service is gone.
#[utoipa::path(get, path = "/volume", tag = "volume", params(Paging), responses(
    (status = 200, description = "Volumes by name", body = List<VolumeView>),
))]
pub(crate) async fn list_volumes(
    State(app): State<AppState>,
    Params(paging): Params<Paging>,
) -> Result<Json<List<VolumeView>>, ApiProblem> {
    let limit = page_size(paging.limit)?;
    let mut names = app.store.volume_names().await?;
    names.retain(|name| paging.after.as_deref().is_none_or(|after| name.as_str() > after));
    let more = names.len() > limit;
    names.truncate(limit);
    let next = names.last().filter(|_| more).map(ToString::to_string);
    let volumes = app.store.volumes_each(&names).await?;
    // A volume whose record cannot be read is left out.
    let volumes = volumes.into_iter().filter_map(|volume| volume.ok().flatten()).collect();
    Ok(Json(List { items: views_of(&app, volumes).await?, next }))
}

/// Shows one persistent volume.
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

/// Removes a persistent volume with its data, unless its service uses it.
///
/// Its node removes the data. While that node is down, the volume stays in the state `removing`.
#[utoipa::path(delete, path = "/volume/{name}", tag = "volume", params(InPath<VolumeName>), responses(
    (status = 202, description = "Its node removes the data"),
    (status = 204, description = "Removed: its node is not in the cluster any more"),
    (status = 404, description = "There is no such volume"),
    (status = 409, description = "Its service uses it"),
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
                "volume {name} belongs to a replica that its service wants: scale the service down or delete it, \
                 wait until the pod is gone, and try again"
            ),
        )),
    }
}

async fn views_of(app: &AppState, volumes: Vec<Volume>) -> Result<Vec<VolumeView>, ApiProblem> {
    let mut names: Vec<ServiceName> = volumes.iter().map(|volume| volume.claim.service.clone()).collect();
    names.sort();
    names.dedup();
    let (services, _broken) = app.store.services_each(&names).await?;
    let services: HashMap<&ServiceName, &Service> =
        services.iter().map(|service| (&service.name, service)).collect();
    Ok(volumes.into_iter().map(|volume| view(&services, volume)).collect())
}

fn view(services: &HashMap<&ServiceName, &Service>, volume: Volume) -> VolumeView {
    let claim = volume.claim;
    let in_use = services.get(&claim.service).is_some_and(|service| {
        service.state != ServiceState::Deleting
            && claim.replica < service.replicas
            && service.pod.persistent_volumes().iter().any(|mounted| mounted.source == claim.source)
    });
    VolumeView {
        name: claim.name,
        service: claim.service,
        source: claim.source,
        replica: claim.replica,
        node: volume.node,
        state: volume.state,
        in_use,
        space: claim.space,
        created_at: rfc3339(volume.created_at),
    }
}

fn not_found(name: &VolumeName) -> ApiProblem {
    let detail = format!("there is no persistent volume {name}: GET /volume lists them");
    ApiProblem::new(ProblemKind::VolumeNotFound, detail)
}
