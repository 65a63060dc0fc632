//! Checks of a service before it is stored.

use model::ids::ServiceName;
use model::spec::{DesiredService, ServiceInput};

use crate::admission::capacity::Demand;
use crate::http::params::PlacementOptions;
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;

pub(super) async fn check_capacity(
    app: &AppState,
    demand: &Demand,
    options: PlacementOptions,
) -> Result<(), ApiProblem> {
    if options.allow_partial {
        return Ok(());
    }
    app.shortage(demand).await.map_or(Ok(()), |shortage| Err(shortage.into()))
}

/// An existing service is reported as such even if the cluster is full.
pub(super) async fn check_new(
    app: &AppState,
    desired: &DesiredService,
    options: PlacementOptions,
) -> Result<(), ApiProblem> {
    let checked = check_capacity(app, &Demand::of(desired, None), options).await;
    match checked {
        Err(problem) if app.store.service(&desired.name).await?.is_none() => Err(problem),
        _ => Ok(()),
    }
}

pub(super) fn check_ingress(app: &AppState, desired: &DesiredService) -> Result<(), ApiProblem> {
    let has_auto = desired.fields.ingress.iter().any(|rule| rule.auto_host().is_some());
    if has_auto && app.config.secret_key.is_none() { Err(ApiProblem::no_secret_key()) } else { Ok(()) }
}

pub(super) fn check_name(name: &ServiceName, input: &ServiceInput) -> Result<(), ApiProblem> {
    if input.name() == name {
        return Ok(());
    }
    let detail = format!("is {}, but the path has {name}: a service cannot be renamed", input.name());
    Err(ApiProblem::new(ProblemKind::InvalidService, format!("/name {detail}")).at("/name", detail))
}
