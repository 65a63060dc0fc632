//! Services that depend on each other.

use std::collections::BTreeMap;

use common::ids::ServiceName;
use common::spec::{DependsOn, DesiredService, circle_with};

use crate::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;

/// The most services that are looked at for a circle: a request must not read a whole large cluster.
const MAX_LOOKED_AT: usize = 1000;

/// Refuses a service that would wait for itself. Two requests at the same time can still close a circle: then the pods
/// say what they wait for.
pub(super) async fn check_circle(app: &AppState, desired: &DesiredService) -> Result<(), ApiProblem> {
    let mut known: BTreeMap<String, DependsOn> = BTreeMap::new();
    let mut next: Vec<ServiceName> = desired.depends_on.services().collect();
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
    match circle_with(desired.name.as_str(), &desired.depends_on, &known) {
        None => Ok(()),
        Some(path) => {
            let detail = format!("a circle: {path}; none of them could start");
            let problem = ApiProblem::new(ProblemKind::InvalidService, format!("/depends_on: {detail}"));
            Err(problem.at("/depends_on", detail))
        }
    }
}
