//! What a service was before, and how it becomes that again.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use common::api::{GenerationView, List, ServiceView};
use common::ids::ServiceName;
use common::service::{Service, ServiceState};
use common::spec::{DesiredService, PodSpec};
use common::store::{BrokenKey, FormerGeneration};
use serde::Deserialize;
use utoipa::IntoParams;

use super::change::ServiceChange;
use super::stored::{being_deleted, not_found, read};
use crate::params::{IfMatch, InPath, Params, PlacementOptions};
use crate::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;
use crate::views;

/// Lists the current generation of a service, then its former ones, the newest first.
///
/// The last ten are kept. Two never have the same specification: one that was had again is the newest.
#[utoipa::path(
    get, path = "/service/{name}/history", tag = "service", params(InPath<ServiceName>), responses(
        (status = 200, description = "The generations", body = List<GenerationView>),
        (status = 404, description = "There is no such service"),
    )
)]
pub(crate) async fn list_history(
    State(app): State<AppState>,
    InPath(name): InPath<ServiceName>,
) -> Result<Json<List<GenerationView>>, ApiProblem> {
    let service = read(&app, &name).await?.ok_or_else(|| not_found(&name))?;
    let former = former_generations(&app, &name).await?;
    let current = views::generation(service.generation, None, service.pod);
    let former = former.into_iter().map(|one| views::generation(one.generation, Some(one.until), one.pod));
    Ok(Json(List { items: std::iter::once(current).chain(former).collect(), next: None }))
}

/// The generation to go back to.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct UndoOptions {
    /// The number of a former generation; without it, the latest.
    to: Option<u64>,
    /// Whether a service that does not fit the cluster is stored, so that what fits is started.
    #[serde(default)]
    allow_partial: bool,
}

/// Replaces the pods of a service by pods of a former specification, step by step.
///
/// This is a new generation. Replicas, labels, dependencies and ingress stay as they are. Repeated without
/// `to` it undoes itself: clients that retry should send `If-Match`.
#[utoipa::path(
    post, path = "/service/{name}/undo", tag = "service", params(InPath<ServiceName>, UndoOptions, IfMatch),
    responses(
        (status = 200, description = "The pods will be replaced", body = ServiceView),
        (status = 202, description = "Stored, not yet confirmed by all replicas of Redis",
         body = ServiceView),
        (status = 403, description = "The cluster has as many pods as its settings allow"),
        (status = 404, description = "There is no such service"),
        (status = 409, description = "There is nothing to undo, or the service is being deleted or does not fit"),
        (status = 412, description = "The service has another revision"),
        (status = 507, description = "Redis is too full to add this"),
    )
)]
pub(crate) async fn undo_service(
    State(app): State<AppState>,
    InPath(name): InPath<ServiceName>,
    Params(UndoOptions { to, allow_partial }): Params<UndoOptions>,
    condition: IfMatch,
) -> Result<Response, ApiProblem> {
    ServiceChange::Undo { to }.apply(&app, &name, condition, PlacementOptions { allow_partial }).await
}

/// Returns the service with the pods of a former generation.
pub(super) async fn undone(
    app: &AppState,
    service: &Service,
    to: Option<u64>,
) -> Result<DesiredService, ApiProblem> {
    if service.state == ServiceState::Deleting {
        return Err(being_deleted(&service.name));
    }
    let former = former_generations(app, &service.name).await?;
    let pod = chosen(service, former, to)?;
    Ok(DesiredService { pod, ..DesiredService::from(service.clone()) })
}

async fn former_generations(app: &AppState, name: &ServiceName) -> Result<Vec<FormerGeneration>, ApiProblem> {
    let former = app.store.former_generations(name).await;
    former.map_err(|error| ApiProblem::of_key(error, |error| BrokenKey::history(name, error)))
}

/// Chooses among the former generations, of which the newest is first.
fn chosen(service: &Service, former: Vec<FormerGeneration>, to: Option<u64>) -> Result<PodSpec, ApiProblem> {
    let name = &service.name;
    let kept: Vec<String> = former.iter().map(|one| one.generation.to_string()).collect();
    let is_chosen = |one: &FormerGeneration| match to {
        Some(to) => one.generation == to,
        // A version without histories may have brought it back.
        None => one.pod != service.pod,
    };
    if let Some(one) = former.into_iter().find(is_chosen) {
        return Ok(one.pod);
    }
    let detail = match to {
        Some(to) if to == service.generation => {
            format!("generation {to} of service {name} is the current one; nothing was changed")
        }
        _ if kept.is_empty() => format!(
            "service {name} has no former generation: its pods never had another specification, or it was changed by \
             a version without histories; nothing was changed"
        ),
        Some(to) => format!(
            "service {name} has no former generation {to}; it has {}; nothing was changed",
            kept.join(", ")
        ),
        None => format!("no former generation of service {name} differs from the current one"),
    };
    Err(ApiProblem::new(ProblemKind::NothingToUndo, detail))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use testkit::fixtures;

    use super::*;

    fn pod(image: &str) -> PodSpec {
        let mut pod = fixtures::service().pod;
        pod.containers[0].image = image.to_owned();
        pod
    }

    fn chosen_image(former: &[(u64, &str)], to: Option<u64>) -> Result<String, String> {
        let service = Service { generation: 5, pod: pod("now"), ..fixtures::service() };
        let former = former.iter().map(|(generation, image)| FormerGeneration {
            generation: *generation,
            until: 1,
            fingerprint: String::new(),
            pod: pod(image),
        });
        let chosen = chosen(&service, former.collect(), to);
        chosen.map(|pod| pod.image().to_owned()).map_err(|problem| problem.detail)
    }

    #[test]
    fn the_latest_that_differs_comes_back_or_the_one_that_is_named() {
        let former = [(4, "now"), (3, "b"), (1, "a")];
        assert_eq!(chosen_image(&former, None).unwrap(), "b");
        assert_eq!(chosen_image(&former, Some(1)).unwrap(), "a");
        for (former, to, said) in [
            (&former[..], Some(2), "has no former generation 2; it has 4, 3, 1"),
            (&former, Some(5), "is the current one"),
            (&[], None, "never had another specification"),
            (&[], Some(2), "never had another specification"),
            (&[(4, "now")], None, "no former generation of service web differs"),
        ] {
            let detail = chosen_image(former, to).unwrap_err();
            assert!(detail.contains(said), "{detail}");
        }
    }
}
