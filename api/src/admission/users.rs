//! Services that use an object to be deleted: their next pods would wait for it forever.

use model::ids::{RegistryHost, ServiceName, ValueName};
use model::service::{Service, ServiceState};
use model::spec::ContainerSpec;
use model::value::ValueKind;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::first_names::first_names;
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;

const MAX_NAMED: usize = 5;

/// Whether something is deleted that services use.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ForceOption {
    /// Deletes it although services use it.
    #[serde(default)]
    pub(crate) force: bool,
}

pub(crate) enum UsedObject<'a> {
    Value(ValueKind, &'a ValueName),
    Login(&'a RegistryHost),
}

impl UsedObject<'_> {
    fn is_used_by(&self, container: &ContainerSpec) -> bool {
        match self {
            Self::Value(kind, name) => {
                let files = if *kind == ValueKind::Secret { &container.secrets } else { &container.configs };
                files.iter().any(|file| file.source.as_str() == name.as_str())
            }
            Self::Login(host) => RegistryHost::of_image(&container.image).as_ref() == Some(*host),
        }
    }

    fn in_use(&self, users: &[ServiceName]) -> ApiProblem {
        let count = users.len();
        let users = first_names(users, MAX_NAMED);
        let word = if count == 1 { "service" } else { "services" };
        let detail = match self {
            Self::Value(kind, name) => format!(
                "the {kind} {name} is used by {word} {users}, whose next pods would wait for it: take it out of them \
                 first, or delete it nevertheless with `--force` (?force=true); nothing was changed"
            ),
            Self::Login(host) => {
                let pulls = if count == 1 { "pulls" } else { "pull" };
                format!(
                    "{word} {users} {pulls} from {host}, and the next pods might not be able to: delete the login \
                     nevertheless with `--force` (?force=true); nothing was changed"
                )
            }
        };
        ApiProblem::new(ProblemKind::ObjectInUse, detail)
    }
}

/// Ignores services that are being deleted or have unreadable records.
pub(crate) async fn check_unused(
    app: &AppState,
    object: UsedObject<'_>,
    options: &ForceOption,
) -> Result<(), ApiProblem> {
    if options.force {
        return Ok(());
    }
    let names = app.store.service_names().await?;
    let services = app.store.services(&names).await?.found();
    let uses = |service: &&Service| {
        service.state == ServiceState::Active
            && service.pod.containers.iter().any(|container| object.is_used_by(container))
    };
    let users: Vec<ServiceName> = services.iter().filter(uses).map(|service| service.name.clone()).collect();
    if users.is_empty() { Ok(()) } else { Err(object.in_use(&users)) }
}
