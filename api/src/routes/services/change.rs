//! Changes an existing service. If another client changes it meanwhile, reads it again and retries.

use axum::response::Response;
use model::ids::ServiceName;
use model::service::Service;
use model::spec::DesiredService;
use serde_json::{Map, Value};
use store::{FormerGeneration, PutMode, PutOutcome};

use super::checks::{check_name, check_service};
use super::former::undone;
use super::stored::{read, respond, respond_to_dry_run, revision_conflict};
use crate::http::params::{IfMatch, PlacementOptions};
use crate::http::patch;
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;

const MAX_ATTEMPTS: usize = 5;

pub(super) enum ServiceChange {
    Patch(Map<String, Value>),
    /// Without `to`, [`undone`] chooses the generation.
    Undo {
        to: Option<u64>,
    },
}

impl ServiceChange {
    async fn desired(
        &self,
        app: &AppState,
        service: &Service,
    ) -> Result<(DesiredService, Option<FormerGeneration>), ApiProblem> {
        match self {
            Self::Patch(fields) => {
                let input = patch::apply(service, fields)?;
                check_name(&service.name, &input)?;
                Ok((input.normalize()?, None))
            }
            Self::Undo { to } => {
                let former = undone(app, service, *to).await?;
                Ok((former.desired(service), Some(former)))
            }
        }
    }

    pub(super) async fn apply(
        &self,
        app: &AppState,
        name: &ServiceName,
        condition: IfMatch,
        options: PlacementOptions,
    ) -> Result<Response, ApiProblem> {
        for _ in 0..MAX_ATTEMPTS {
            let service = read(app, name).await?;
            if condition.revision().is_some_and(|expected| expected != service.revision) {
                return Err(revision_conflict(name, service.revision));
            }
            let (desired, former) = self.desired(app, &service).await?;
            check_service(app, &desired, Some(&service), options).await?;
            let expected = Some(service.revision);
            if options.dry_run {
                return respond_to_dry_run(&desired, Some(&service), expected);
            }
            let stored = match former {
                None => app.store.put_service(&desired, PutMode::Replace, expected).await?,
                Some(former) => app.store.undo_service(&service, &former, expected).await?,
            };
            match stored {
                (PutOutcome::Conflict { .. }, _) => {}
                (outcome, written) => {
                    let created_pods = 0;
                    return respond(app, name, outcome, created_pods, written).await;
                }
            }
        }
        let detail =
            format!("other clients changed service {name} during {MAX_ATTEMPTS} attempts; try again");
        Err(ApiProblem::new(ProblemKind::ConcurrentModification, detail))
    }
}
