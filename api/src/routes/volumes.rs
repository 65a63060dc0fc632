//! `/volume`: data of services.

use std::collections::HashMap;
use std::time::Duration;

use api_types::{BindVolumeInput, List, VolumeCondition, VolumeView};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use model::ids::{NodeName, ServiceName, VolumeName};
use model::service::volume::{FormerCopy, Volume, VolumeClaim, VolumeScope, VolumeState};
use model::service::{Service, ServiceState};
use model::spec::VolumeKind;
use model::time::rfc3339;
use serde::Deserialize;
use store::{BindVolumeOutcome, RemoveVolumeOutcome};
use utoipa::IntoParams;

use crate::http::body::JsonOrYaml;
use crate::http::params::{InPath, Paging, Params, page_of};
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;

/// Lists persistent and shared volumes, also those whose service is gone.
///
/// Copies of persistent ones that are not the volume any more have the same name, and the `condition`
/// `former`.
#[utoipa::path(get, path = "/volume", tag = "volume", params(Paging), responses(
    (status = 200, description = "Volumes by name", body = List<VolumeView>),
))]
pub(crate) async fn list_volumes(
    State(app): State<AppState>,
    Params(paging): Params<Paging>,
) -> Result<Json<List<VolumeView>>, ApiProblem> {
    let copies = app.store.former_copies().await?;
    let mut names = app.store.volume_names().await?;
    names.extend(copies.iter().map(|copy| copy.volume.clone()));
    names.sort();
    names.dedup();
    let (names, next) = page_of(names, &paging)?;
    let mut items = views_of(&app, app.store.volumes(&names).await?.found()).await?;
    items.extend(copies.into_iter().filter(|copy| names.contains(&copy.volume)).filter_map(former_view));
    items.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Json(List { items, next }))
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
    let Some(volume) = app.store.volume(&name).await? else {
        let copies = app.store.former_copies().await?.into_iter();
        let mut copies = copies.filter(|copy| copy.volume == name).filter_map(former_view);
        return copies.next().map(Json).ok_or_else(|| not_found(&name));
    };
    views_of(&app, vec![volume]).await?.pop().map(Json).ok_or_else(|| not_found(&name))
}

/// The volume to remove.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RemovalOptions {
    /// Remove only the copy that this node has, which is not the volume.
    node: Option<NodeName>,
}

/// Makes the copy that a node has of a persistent volume the volume.
///
/// All other copies are given up: they stay where they are, and are listed with `condition` `former`.
#[utoipa::path(post, path = "/volume/{name}/bind", tag = "volume", params(InPath<VolumeName>),
    request_body(content(
        (BindVolumeInput = "application/json", example = json!({"node": "w1"})),
        (BindVolumeInput = "application/yaml", example = json!({"node": "w1"})),
    )),
    responses(
        (status = 204, description = "The copy of that node is the volume"),
        (status = 404, description = "The node has no copy of such a volume"),
        (status = 409, description = "A pod has another copy of it, or the copy is being removed"),
))]
pub(crate) async fn bind_volume(
    State(app): State<AppState>,
    InPath(name): InPath<VolumeName>,
    JsonOrYaml(BindVolumeInput { node }): JsonOrYaml<BindVolumeInput>,
) -> Result<StatusCode, ApiProblem> {
    let claim = VolumeClaim::from_name(&name).filter(|claim| !claim.scope.is_shared());
    let claim = claim.ok_or_else(|| not_found(&name))?;
    let space = app.store.volume(&name).await.ok().flatten().and_then(|volume| volume.claim.space);
    match app.store.bind_volume(&VolumeClaim { space, ..claim }, &node).await? {
        BindVolumeOutcome::Bound => Ok(StatusCode::NO_CONTENT),
        BindVolumeOutcome::Missing => Err(no_copy(&name, &node)),
        BindVolumeOutcome::Used => Err(in_use(format!(
            "a pod has another copy of volume {name}: scale its service down, wait until the pod is gone, and try \
             again"
        ))),
        BindVolumeOutcome::Removing => {
            Err(in_use(format!("volume {name}, or its copy on {node}, is being removed")))
        }
    }
}

/// Removes a persistent or shared volume with its data, unless a service uses it.
///
/// Its node removes the data; of a shared volume, one that has the shared directory. While that node is down,
/// the volume stays in the state `removing`. Asking again asks another node, if the volume is shared.
#[utoipa::path(delete, path = "/volume/{name}", tag = "volume", params(InPath<VolumeName>, RemovalOptions), responses(
    (status = 202, description = "Its node removes the data"),
    (status = 204, description = "Removed: its node is not in the cluster any more"),
    (status = 404, description = "There is no such volume"),
    (status = 409, description = "A service uses it, its copies contradict each other, or no node with the shared \
        directory is alive"),
))]
pub(crate) async fn remove_volume(
    State(app): State<AppState>,
    InPath(name): InPath<VolumeName>,
    Params(RemovalOptions { node }): Params<RemovalOptions>,
) -> Result<StatusCode, ApiProblem> {
    if let Some(node) = node {
        return remove_copy(&app, &name, &node).await;
    }
    match app.store.remove_volume(&name).await? {
        RemoveVolumeOutcome::Removing => Ok(StatusCode::ACCEPTED),
        RemoveVolumeOutcome::Removed => Ok(StatusCode::NO_CONTENT),
        RemoveVolumeOutcome::Missing => Err(not_found(&name)),
        RemoveVolumeOutcome::Conflict => Err(in_use(format!(
            "several nodes have copies of volume {name}: choose one with `kubeleet volume bind {name} NODE`, or remove \
             one with `kubeleet volume rm {name} --node NODE`"
        ))),
        RemoveVolumeOutcome::Used => Err(in_use(format!(
            "volume {name} is used by a service, or belongs to a replica that it wants: scale the service down \
             or delete it, wait until the pod is gone, and try again"
        ))),
        RemoveVolumeOutcome::NoNode => Err(in_use(format!(
            "volume {name} is in the directory that nodes share, and no node that has it is alive: start a worker \
             with KUBELEET_SHARED_VOLUMES_DIR, or see in `kubeleet node ls -o wide` why it is not ready"
        ))),
    }
}

async fn remove_copy(app: &AppState, name: &VolumeName, node: &NodeName) -> Result<StatusCode, ApiProblem> {
    let claim = VolumeClaim::from_name(name).ok_or_else(|| not_found(name))?;
    match app.store.remove_volume_copy(&claim, node).await? {
        RemoveVolumeOutcome::Removing => Ok(StatusCode::ACCEPTED),
        RemoveVolumeOutcome::Removed => Ok(StatusCode::NO_CONTENT),
        RemoveVolumeOutcome::Missing
        | RemoveVolumeOutcome::Used
        | RemoveVolumeOutcome::NoNode
        | RemoveVolumeOutcome::Conflict => Err(no_copy(name, node)),
    }
}

async fn views_of(app: &AppState, volumes: Vec<Volume>) -> Result<Vec<VolumeView>, ApiProblem> {
    // An app's services are found by their records.
    let mut names: Vec<ServiceName> = if volumes.iter().any(|volume| volume.claim.scope == VolumeScope::App) {
        app.store.service_names().await?
    } else {
        volumes.iter().map(|volume| volume.claim.service.clone()).collect()
    };
    names.sort();
    names.dedup();
    let services = app.store.services(&names).await?.found();
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
    let abandoned = app.store.abandoned_volumes().await.unwrap_or_default();
    let with_age = |mut view: VolumeView| {
        let without = abandoned.get(&view.name).filter(|_| view.problem.is_none() && !view.in_use);
        view.problem = without.map(|without| gone_for(*without)).or(view.problem.take());
        view
    };
    Ok(volumes.into_iter().map(|volume| with_age(view(is_used(&volume), volume))).collect())
}

fn view(in_use: bool, volume: Volume) -> VolumeView {
    let (condition, problem) = condition_of(&volume);
    let claim = volume.claim;
    VolumeView {
        name: claim.name,
        kind: if claim.scope.is_shared() { VolumeKind::Shared } else { VolumeKind::Persistent },
        service: claim.service,
        source: claim.source,
        replica: claim.scope.replica(),
        node: volume.node,
        engine_id: volume.engine_id,
        condition,
        state: volume.state,
        in_use,
        space: claim.space,
        used: volume.used,
        problem: problem.or(volume.over),
        created_at: rfc3339(volume.created_at),
    }
}

pub(crate) fn condition_of(volume: &Volume) -> (VolumeCondition, Option<String>) {
    let name = &volume.claim.name;
    if !volume.conflict.is_empty() {
        let nodes: Vec<&str> = volume.conflict.iter().map(|node| node.as_str()).collect();
        let problem = format!(
            "volume {name} has copies on {}, and which one is wanted is not known: `kubeleet volume bind {name} NODE` \
             chooses one; no pod gets it before",
            nodes.join(" and ")
        );
        return (VolumeCondition::Conflict, Some(problem));
    }
    if volume.is_lost {
        let node = volume.node.as_ref().map(ToString::to_string).unwrap_or_default();
        let problem = format!(
            "volume {name} is lost: {node} does not have its data any more. Its pod waits; `kubeleet volume rm {name}` \
             begins anew on an empty volume"
        );
        return (VolumeCondition::Lost, Some(problem));
    }
    (VolumeCondition::Good, None)
}

fn gone_for(time: Duration) -> String {
    let hours = time.as_secs() / 3600;
    format!(
        "its service has been gone for {hours} h: the schedulers remove it with its data after KUBELEET_VOLUME_GRACE, \
         unless the service comes back"
    )
}

/// `None` for an invalid name.
fn former_view(copy: FormerCopy) -> Option<VolumeView> {
    let claim = VolumeClaim::from_name(&copy.volume)?;
    Some(VolumeView {
        name: claim.name,
        kind: VolumeKind::Persistent,
        service: claim.service,
        source: claim.source,
        replica: claim.scope.replica(),
        node: Some(copy.node),
        engine_id: copy.engine_id,
        condition: VolumeCondition::Former,
        state: VolumeState::Bound,
        in_use: copy.is_mounted,
        space: None,
        used: None,
        problem: None,
        created_at: rfc3339(copy.epoch.unwrap_or_default()),
    })
}

fn in_use(detail: String) -> ApiProblem {
    ApiProblem::new(ProblemKind::VolumeInUse, detail)
}

fn no_copy(name: &VolumeName, node: &NodeName) -> ApiProblem {
    let detail = format!("{node} has no such copy of volume {name}: GET /volume lists them");
    ApiProblem::new(ProblemKind::VolumeNotFound, detail)
}

fn not_found(name: &VolumeName) -> ApiProblem {
    let detail = format!("there is no volume {name}: GET /volume lists them");
    ApiProblem::new(ProblemKind::VolumeNotFound, detail)
}
