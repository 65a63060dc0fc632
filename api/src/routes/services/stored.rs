//! What is done once a service is stored, and the answer that says so.

use std::collections::HashSet;

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::{ETAG, LOCATION};
use axum::response::{IntoResponse, Response};
use common::ids::ServiceName;
use common::service::{MADE_AT_ONCE, Service, ServiceState};
use common::store::{CreateOutcome, PutOutcome, Written};

use crate::census;
use crate::dto::{DurabilityState, DurabilityView, ServiceView};
use crate::problem::{ApiProblem, Kind};
use crate::state::App;
use crate::views;

/// Turns what became of a write into an answer; so many pods were made with it.
pub(super) async fn accepted(
    app: &App,
    name: &ServiceName,
    outcome: PutOutcome,
    made: usize,
    written: Written,
) -> Result<Response, ApiProblem> {
    match outcome {
        PutOutcome::Created(service) => Ok(created(app, &service, made, written).await),
        PutOutcome::Replaced { .. } | PutOutcome::Scaled { .. } | PutOutcome::Unchanged { .. } => {
            stored(app, name, StatusCode::OK, written).await
        }
        PutOutcome::Exists => {
            let detail = format!("service {name} exists: PUT /service/{name} replaces it");
            Err(ApiProblem::new(Kind::ServiceExists, detail))
        }
        PutOutcome::Missing => Err(missing(name)),
        PutOutcome::Deleting => Err(deleting(name)),
        PutOutcome::Conflict { generation } => Err(conflict(name, generation)),
    }
}

/// What is done once a new service is stored, and so many of its pods are made already: the others are made, and the client
/// sees it. Nothing is read again: what the script has stored is known, and whoever waits for the first pod waits for
/// every question asked before it.
async fn created(app: &App, service: &Service, made: usize, written: Written) -> Response {
    let durability = app.note_write(&service.name, written);
    let progress = if made as u64 == u64::from(service.replicas) {
        census::just_made(service, made)
    } else if service.replicas <= MADE_AT_ONCE {
        census::just_made(service, made + make(app, service, service.all_replicas()).await)
    } else {
        make_later(app, service.clone());
        census::just_stored(service)
    };
    answer(StatusCode::CREATED, views::service(service.clone(), progress), durability)
}

/// What is done once a service is stored: its missing pods are made, and the client sees it.
pub(super) async fn stored(
    app: &App,
    name: &ServiceName,
    status: StatusCode,
    written: Written,
) -> Result<Response, ApiProblem> {
    let durability = app.note_write(name, written);
    // Deleted and forgotten since: then that is how it is.
    let service = app.store.service(name).await?.ok_or_else(|| missing(name))?;
    let progress = if service.replicas <= MADE_AT_ONCE {
        make_missing(app, &service).await;
        census::status(&app.store, &service).await?
    } else {
        make_later(app, service.clone());
        census::just_stored(&service)
    };
    Ok(answer(status, views::service(service, progress), durability))
}

fn answer(status: StatusCode, mut view: ServiceView, durability: DurabilityView) -> Response {
    let status = match durability.state {
        DurabilityState::Unconfirmed => StatusCode::ACCEPTED,
        DurabilityState::Confirmed | DurabilityState::SingleMachine => status,
    };
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

/// A crash on the way is healed by reconcile.
fn make_later(app: &App, service: Service) {
    let app_too = app.clone();
    app.tasks.spawn(async move {
        let work = make_missing(&app_too, &service);
        app_too.shutdown.run_until_cancelled(work).await;
    });
}

/// Makes the pods whose slots are free.
async fn make_missing(app: &App, service: &Service) {
    if service.state == ServiceState::Deleting {
        return;
    }
    let free = match app.store.slots(&service.name).await {
        Ok(slots) => {
            let taken: HashSet<u32> = slots.into_iter().map(|(replica, _)| replica).collect();
            service.all_replicas().into_iter().filter(|replica| !taken.contains(replica)).collect()
        }
        // The script looks as well.
        Err(_) => service.all_replicas(),
    };
    make(app, service, free).await;
}

/// Makes pods; gives how many. What fails here is no failure of the request: reconcile does it again.
async fn make(app: &App, service: &Service, replicas: Vec<u32>) -> usize {
    match app.store.create_pods(service, &replicas).await {
        Ok(CreateOutcome::Created(count)) => {
            tracing::debug!(service = %service.name, count, "pods made");
            return count;
        }
        Ok(CreateOutcome::Changed) => tracing::debug!(service = %service.name, "changed meanwhile"),
        Err(error) => tracing::warn!(service = %service.name, %error, "pods not made yet; reconcile will"),
    }
    0
}

pub(super) fn with_etag(status: StatusCode, view: ServiceView) -> Response {
    let etag = format!("\"{}\"", view.generation);
    (status, [(ETAG, etag)], Json(view)).into_response()
}

pub(super) fn missing(name: &ServiceName) -> ApiProblem {
    ApiProblem::new(Kind::ServiceNotFound, format!("there is no service {name}; GET /service lists them"))
}

pub(super) fn deleting(name: &ServiceName) -> ApiProblem {
    let detail = format!("service {name} is being deleted; try again when its last pods are gone");
    ApiProblem::new(Kind::ServiceDeleting, detail)
}

pub(super) fn conflict(name: &ServiceName, generation: u64) -> ApiProblem {
    let detail = format!("service {name} has generation {generation} by now; read it again");
    ApiProblem::new(Kind::GenerationConflict, detail)
}
