//! Results of jobs, and manual runs of crons.

use api_types::{IndexResultView, List, ServiceView};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use model::ids::{ServiceName, WriteId};
use model::service::{Service, ServiceState};
use model::spec::{DesiredService, Kind};
use serde::Deserialize;
use store::{CronTick, TickOutcome};
use utoipa::IntoParams;

use super::stored::{being_deleted, read, respond_stored};
use crate::admission::growth::Growth;
use crate::http::params::{InPath, Params};
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;
use crate::status::kind_status;

const MAX_ATTEMPTS: usize = 20;

/// Shows the results of the ended indices of a job.
#[utoipa::path(get, path = "/service/{name}/results", tag = "service", params(InPath<ServiceName>), responses(
    (status = 200, description = "A result for each index that has ended, by index", body = List<IndexResultView>),
    (status = 404, description = "There is no such service"),
    (status = 409, description = "The service is no job"),
))]
pub(crate) async fn list_results(
    State(app): State<AppState>,
    InPath(name): InPath<ServiceName>,
) -> Result<Json<List<IndexResultView>>, ApiProblem> {
    let service = read(&app, &name).await?;
    if service.kind() != Kind::Job {
        return Err(wrong_kind(&service, "only a job has results"));
    }
    let results = app.store.job_results(&name).await?;
    Ok(Json(List { items: kind_status::results(results), next: None }))
}

/// The name of a job that is run by hand.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RunOptions {
    /// Name of the job; by default that of the cron with a random ending. A request that is repeated with the
    /// same name creates nothing twice.
    job: Option<ServiceName>,
}

/// Creates a job of a cron now, whatever its schedule says, and whether it is suspended or not.
#[utoipa::path(
    post, path = "/service/{name}/run", tag = "service", params(InPath<ServiceName>, RunOptions),
    responses(
        (status = 201, description = "The job", body = ServiceView),
        (status = 202, description = "The job, not yet confirmed by all replicas of Redis", body = ServiceView),
        (status = 403, description = "The cluster has as many services or pods as its settings allow"),
        (status = 404, description = "There is no such service"),
        (status = 409, description = "It is no cron, is being deleted, or there is a service of that name"),
        (status = 507, description = "Redis is too full to add this"),
    )
)]
pub(crate) async fn run_service(
    State(app): State<AppState>,
    InPath(name): InPath<ServiceName>,
    Params(options): Params<RunOptions>,
) -> Result<Response, ApiProblem> {
    for _ in 0..MAX_ATTEMPTS {
        let cron = read(&app, &name).await?;
        if cron.kind() != Kind::Cron {
            return Err(wrong_kind(&cron, "only a cron can be run"));
        }
        if cron.state == ServiceState::Deleting {
            return Err(being_deleted(&name));
        }
        let job = options.job.clone().map_or_else(|| random_name(&name), Ok)?;
        let replicas = cron.fields.job.as_ref().map_or(1, |job| job.completions);
        let desired = DesiredService { replicas, ..cron.clone().into() };
        app.admit(Growth::of(&desired, None)).await?;
        let ticks = cron.schedule.ticks_text.clone();
        let by_hand = CronTick { tick: 0, ticks, missed: 0, skipped: None };
        match app.store.take_tick(&cron, &job, &by_hand).await? {
            TickOutcome::Taken(written) => {
                return respond_stored(&app, &job, StatusCode::CREATED, written).await;
            }
            TickOutcome::Changed => {}
            TickOutcome::NameTaken => {
                let detail =
                    format!("service {job} exists: take another name for the job, or leave the name out");
                return Err(ApiProblem::new(ProblemKind::ServiceExists, detail));
            }
        }
    }
    let detail = format!("cron {name} was changed during {MAX_ATTEMPTS} attempts to run it; try again");
    Err(ApiProblem::new(ProblemKind::ConcurrentModification, detail))
}

fn random_name(cron: &ServiceName) -> Result<ServiceName, ApiProblem> {
    let random: String =
        WriteId::random().to_string().chars().filter(char::is_ascii_hexdigit).take(8).collect();
    ServiceName::new(format!("{cron}-{}", random.to_ascii_lowercase())).map_err(|error| {
        ApiProblem::new(ProblemKind::Internal, format!("no name for a job of {cron}: {error}; give it one"))
    })
}

fn wrong_kind(service: &Service, why: &str) -> ApiProblem {
    ApiProblem::new(ProblemKind::WrongKind, format!("{} is a {}: {why}", service.name, service.kind()))
}
