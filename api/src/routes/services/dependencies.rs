//! Dependencies between services.

use std::collections::BTreeMap;

use document::json_pointer;
use model::ids::ServiceName;
use model::spec::{DependsOn, DesiredService, StartCondition, circle_with};

use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;

/// A request must not read a whole large cluster.
const MAX_LOOKED_AT: usize = 1000;

pub(super) async fn check_dependencies(app: &AppState, desired: &DesiredService) -> Result<(), ApiProblem> {
    check_circle(app, desired).await?;
    check_completed(app, desired).await
}

/// Missing services and later changes are not checked: then the pods report what they wait for.
async fn check_completed(app: &AppState, desired: &DesiredService) -> Result<(), ApiProblem> {
    let completed = |(name, condition): (&str, StartCondition)| {
        let is_awaited = condition == StartCondition::ServiceCompletedSuccessfully;
        is_awaited.then(|| ServiceName::new(name).ok()).flatten()
    };
    let awaited: Vec<ServiceName> = desired.fields.depends_on.iter().filter_map(completed).collect();
    if awaited.is_empty() {
        return Ok(());
    }
    for service in app.store.services(&awaited).await?.found() {
        let Some(container) = service.pod.restarts_always() else { continue };
        let what =
            container.map_or_else(|| "its container".to_owned(), |name| format!("its container {name}"));
        let name = &service.name;
        let detail = format!(
            "waits until {name} has completed, but {what} is restarted whenever it ends: give {name} `restart: never` \
             or `on-failure`, or wait for `service_started` or `service_healthy`"
        );
        let pointer = format!("/depends_on/{}", json_pointer::escape(name.as_str()));
        let problem = ApiProblem::new(ProblemKind::InvalidService, format!("{pointer}: {detail}"));
        return Err(problem.at(pointer, detail));
    }
    Ok(())
}

/// Concurrent requests can still close a cycle: then the pods report what they wait for.
async fn check_circle(app: &AppState, desired: &DesiredService) -> Result<(), ApiProblem> {
    let mut known: BTreeMap<String, DependsOn> = BTreeMap::new();
    let mut next: Vec<ServiceName> = desired.fields.depends_on.services().collect();
    while !next.is_empty() && known.len() < MAX_LOOKED_AT {
        let read = app.store.depends_on(&next).await?;
        known.extend(next.iter().map(ToString::to_string).zip(read));
        let found = known.values().flat_map(DependsOn::services);
        let mut unread: Vec<ServiceName> =
            found.filter(|name| *name != desired.name && !known.contains_key(name.as_str())).collect();
        unread.sort();
        unread.dedup();
        next = unread;
    }
    match circle_with(desired.name.as_str(), &desired.fields.depends_on, &known) {
        None => Ok(()),
        Some(path) => {
            let detail = format!("a circle: {path}; none of them could start");
            let problem = ApiProblem::new(ProblemKind::InvalidService, format!("/depends_on: {detail}"));
            Err(problem.at("/depends_on", detail))
        }
    }
}
