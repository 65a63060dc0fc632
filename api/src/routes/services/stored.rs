//! The answers after a service was stored or refused, with the texts of their problems.

use std::collections::HashSet;

use api_types::{DurabilityView, ServiceView};
use axum::Json;
use axum::http::StatusCode;
use axum::http::header::{ETAG, LOCATION};
use axum::response::{IntoResponse, Response};
use model::ids::ServiceName;
use model::network::ingress::alias_of_route;
use model::service::{PODS_CREATED_INLINE, Service, ServiceState};
use model::spec::{DesiredService, Kind, Mode};
use store::{CreateOutcome, PutOutcome, RedisKey, WriteReceipt, is_same_specification};

use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::{AppState, status_of};
use crate::status::kind_status;
use crate::status::pod_counts;

const MAX_COUNTED_INLINE: u64 = 4 * PODS_CREATED_INLINE as u64;

/// `created_pods` were created together with the service.
pub(super) async fn respond(
    app: &AppState,
    name: &ServiceName,
    outcome: PutOutcome,
    created_pods: usize,
    written: WriteReceipt,
) -> Result<Response, ApiProblem> {
    match outcome {
        PutOutcome::Created(service) => Ok(respond_created(app, &service, created_pods, written).await),
        PutOutcome::Replaced { .. } | PutOutcome::Scaled { .. } | PutOutcome::Unchanged { .. } => {
            respond_stored(app, name, StatusCode::OK, written).await
        }
        PutOutcome::Exists => Err(exists(name)),
        PutOutcome::Missing => Err(not_found(name)),
        PutOutcome::Deleting => Err(being_deleted(name)),
        PutOutcome::Conflict { revision } => Err(revision_conflict(name, revision)),
        PutOutcome::OtherKind { kind } => Err(other_kind(name, kind)),
        PutOutcome::OtherMode { mode } => Err(other_mode(name, mode)),
        PutOutcome::Immutable => Err(job_immutable(name)),
        PutOutcome::RouteTaken { route, service } => Err(route_taken(name, &route, &service)),
    }
}

pub(super) fn respond_to_dry_run(
    desired: &DesiredService,
    existing: Option<&Service>,
    expected: Option<u64>,
) -> Result<Response, ApiProblem> {
    let Some(existing) = existing else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let name = &existing.name;
    if existing.state == ServiceState::Deleting {
        Err(being_deleted(name))
    } else if expected.is_some_and(|expected| expected != existing.revision) {
        Err(revision_conflict(name, existing.revision))
    } else if existing.kind() != desired.pod.kind {
        Err(other_kind(name, existing.kind()))
    } else if existing.pod.mode != desired.pod.mode {
        Err(other_mode(name, existing.pod.mode))
    } else if existing.kind() == Kind::Job && is_other_job(desired, existing) {
        Err(job_immutable(name))
    } else {
        Ok(StatusCode::NO_CONTENT.into_response())
    }
}

fn is_other_job(desired: &DesiredService, existing: &Service) -> bool {
    existing.replicas != desired.replicas || !is_same_specification(&existing.pod, &desired.pod)
}

fn job_immutable(name: &ServiceName) -> ApiProblem {
    let detail = format!(
        "{name} is a job: its containers and completions cannot change. Delete it and create it again, or take \
         another name; nothing was changed"
    );
    ApiProblem::new(ProblemKind::JobImmutable, detail)
}

fn other_kind(name: &ServiceName, kind: Kind) -> ApiProblem {
    let detail = format!(
        "{name} is a {kind}, and stays one: delete it first, or take another name; nothing was changed"
    );
    ApiProblem::new(ProblemKind::WrongKind, detail)
}

fn other_mode(name: &ServiceName, mode: Mode) -> ApiProblem {
    let is = if mode.is_global() { "is global" } else { "has a number of replicas" };
    let detail = format!(
        "{name} {is}, and its `mode` cannot change: delete it first, or take another name; nothing was changed"
    );
    ApiProblem::new(ProblemKind::WrongKind, detail).at("/mode", "cannot change")
}

fn route_taken(name: &ServiceName, route: &str, other: &str) -> ApiProblem {
    if let Some((app, alias)) = alias_of_route(route) {
        let detail = format!(
            "{name}: in the app {app} the name {alias} leads to service {other} already: choose another one, or change \
             {other} first; nothing was changed"
        );
        return ApiProblem::new(ProblemKind::RouteTaken, detail.clone()).at("/aliases", detail);
    }
    let detail = format!(
        "{route} of the ingress of {name} belongs to service {other}: choose another host, path or port, or take it \
         out of the ingress of {other} first; nothing was changed"
    );
    ApiProblem::new(ProblemKind::RouteTaken, detail.clone()).at("/ingress", detail)
}

/// Nothing is read again: every further round trip would delay the first pod.
async fn respond_created(
    app: &AppState,
    service: &Service,
    created_pods: usize,
    written: WriteReceipt,
) -> Response {
    let durability = app.note_write(&service.name, written);
    let first = service.first_replicas();
    let status = if created_pods == first.len() || !service.kind().is_service() {
        pod_counts::status_after_creation(service, created_pods)
    } else if service.replicas <= PODS_CREATED_INLINE {
        let remaining = create_pods(app, service, first).await;
        pod_counts::status_after_creation(service, created_pods + remaining)
    } else {
        create_missing_pods_later(app, service.clone());
        pod_counts::status_before_creation(service)
    };
    write_response(StatusCode::CREATED, kind_status::new_view(service.clone(), status), durability)
}

pub(super) async fn respond_stored(
    app: &AppState,
    name: &ServiceName,
    status: StatusCode,
    written: WriteReceipt,
) -> Result<Response, ApiProblem> {
    let durability = app.note_write(name, written);
    let service = read(app, name).await?;
    // Many pods are being stopped: counting them would take longer than a client waits.
    let counts = app.store.creation_progress(std::slice::from_ref(name)).await?;
    let is_shrinking =
        counts.first().copied().flatten().is_some_and(|(created, _)| created > MAX_COUNTED_INLINE);
    let service_status = if is_shrinking && service.replicas <= PODS_CREATED_INLINE {
        pod_counts::status_while_shrinking(&service)
    } else if service.replicas <= PODS_CREATED_INLINE {
        create_missing_pods(app, &service).await;
        pod_counts::service_status(&app.store, &service).await?
    } else {
        create_missing_pods_later(app, service.clone());
        pod_counts::status_before_creation(&service)
    };
    let view = kind_status::view_with(&app.store, service, service_status).await?;
    Ok(write_response(status, view, durability))
}

fn write_response(status: StatusCode, mut view: ServiceView, durability: DurabilityView) -> Response {
    let status = status_of(&durability, status);
    view.durability = Some(durability);
    let location = format!("/service/{}", view.name).parse();
    let mut response = with_etag(status, view);
    if status != StatusCode::OK
        && let Ok(location) = location
    {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// After a crash the reconcile loop creates them.
fn create_missing_pods_later(app: &AppState, service: Service) {
    let task_app = app.clone();
    app.tasks.spawn(async move {
        let work = create_missing_pods(&task_app, &service);
        task_app.shutdown.run_until_cancelled(work).await;
    });
}

async fn create_missing_pods(app: &AppState, service: &Service) {
    // Only the schedulers create pods of jobs, step by step.
    if service.state == ServiceState::Deleting || !service.kind().is_service() {
        return;
    }
    let free = match app.store.slots(&service.name).await {
        Ok(slots) => {
            let mut taken: HashSet<u32> = slots.into_iter().map(|(slot, _)| slot.replica).collect();
            // No second pod is started beside a container whose record is lost: the schedulers report it.
            let nodes = app.store.holding_nodes().await.unwrap_or_default();
            let held = nodes.iter().flat_map(|node| &node.held_pods);
            taken.extend(held.filter(|held| held.service == service.name).map(|held| held.replica));
            service.first_replicas().into_iter().filter(|replica| !taken.contains(replica)).collect()
        }
        // The script checks every slot again.
        Err(_) => service.first_replicas(),
    };
    create_pods(app, service, free).await;
}

/// After a failure the reconcile loop creates the pods.
async fn create_pods(app: &AppState, service: &Service, replicas: Vec<u32>) -> usize {
    match app.store.create_pods(service, &replicas).await {
        Ok(CreateOutcome::Created(count)) => {
            tracing::debug!(service = %service.name, count, "pods created");
            return count;
        }
        Ok(CreateOutcome::Changed | CreateOutcome::Unconfirmed) => {
            tracing::debug!(service = %service.name, "pods not created: the service has changed since")
        }
        Err(error) => {
            let service = &service.name;
            tracing::warn!(%service, %error, "pods not created; the reconcile loop will create them")
        }
    }
    0
}

pub(crate) async fn read(app: &AppState, name: &ServiceName) -> Result<Service, ApiProblem> {
    find(app, name).await?.ok_or_else(|| not_found(name))
}

pub(super) async fn find(app: &AppState, name: &ServiceName) -> Result<Option<Service>, ApiProblem> {
    let service = app.store.service(name).await;
    service.map_err(|error| ApiProblem::of_key(error, RedisKey::Service(name)))
}

pub(super) fn with_etag(status: StatusCode, view: ServiceView) -> Response {
    let etag = format!("\"{}\"", view.revision);
    (status, [(ETAG, etag)], Json(view)).into_response()
}

pub(super) fn not_found(name: &ServiceName) -> ApiProblem {
    let detail = format!("there is no service {name}; GET /service lists them");
    ApiProblem::new(ProblemKind::ServiceNotFound, detail)
}

pub(super) fn exists(name: &ServiceName) -> ApiProblem {
    let detail = format!("service {name} exists: PUT /service/{name} replaces it");
    ApiProblem::new(ProblemKind::ServiceExists, detail)
}

pub(super) fn being_deleted(name: &ServiceName) -> ApiProblem {
    let detail = format!("service {name} is being deleted; try again when its last pods are gone");
    ApiProblem::new(ProblemKind::ServiceDeleting, detail)
}

pub(super) fn revision_conflict(name: &ServiceName, revision: u64) -> ApiProblem {
    let detail = format!("service {name} has revision {revision} by now; read it again and decide");
    ApiProblem::new(ProblemKind::RevisionConflict, detail)
}
