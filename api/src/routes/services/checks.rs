//! Checks of a service before it is stored.

use model::ids::ServiceName;
use model::service::Service;
use model::spec::{DesiredService, Placement, ServiceFields, ServiceInput};

use super::dependencies::check_dependencies;
use crate::admission::capacity::Demand;
use crate::admission::growth::Growth;
use crate::http::params::PlacementOptions;
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;

/// `existing` is the service that it changes.
pub(super) async fn check_service(
    app: &AppState,
    desired: &DesiredService,
    existing: Option<&Service>,
    options: PlacementOptions,
) -> Result<(), ApiProblem> {
    check_ingress(app, desired)?;
    check_dependencies(app, desired).await?;
    check_rules(app, desired, existing).await?;
    app.admit(Growth::of(desired, existing)).await?;
    match check_capacity(app, &Demand::of(desired, existing), options).await {
        // An existing service is reported as such even if the cluster is full.
        Err(problem) if existing.is_some() || app.store.service(&desired.name).await?.is_none() => {
            Err(problem)
        }
        _ => Ok(()),
    }
}

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

/// Schedulers of the version before know no rules, no `stateful`, no `mode` and no `resources`.
async fn check_rules(
    app: &AppState,
    desired: &DesiredService,
    existing: Option<&Service>,
) -> Result<(), ApiProblem> {
    let rules =
        |fields: &ServiceFields| fields.placement.clone().filter(|rules: &Placement| !rules.is_soft());
    let has_old_rules = existing.is_some_and(|service| rules(&service.fields) == rules(&desired.fields));
    let was_stateful = existing.is_some_and(|service| service.pod.stateful == desired.pod.stateful);
    let was_global = existing.is_some_and(Service::is_global);
    let had_resources = existing.is_some_and(|service| service.pod.resources == desired.pod.resources);
    let field = match (rules(&desired.fields), &desired.pod.stateful, &desired.pod.resources) {
        (Some(_), ..) if !has_old_rules => "placement",
        (_, Some(_), _) if !was_stateful => "stateful",
        (.., named) if !(named.is_empty() || had_resources) => "resources",
        _ if desired.pod.mode.is_global() && !was_global => "mode: global",
        _ => return Ok(()),
    };
    let older = app.store.older_schedulers().await?;
    if older.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = older.iter().map(ToString::to_string).collect();
    let detail = format!(
        "`{field}` needs schedulers of this version, and older ones would not keep to it: upgrade or end {}; one that \
         was killed is forgotten after half a minute",
        names.join(", ")
    );
    Err(ApiProblem::new(ProblemKind::UpgradeIncomplete, detail))
}

fn check_ingress(app: &AppState, desired: &DesiredService) -> Result<(), ApiProblem> {
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
