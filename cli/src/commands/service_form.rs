//! The desired state of a service in one form, whether it comes from a file or from the API: what `edit` shows
//! and `diff` compares.

use common::api::ServiceView;
use common::spec::{DesiredService, PodSpec, ServiceInput, Violation};

use super::error::CommandError;

/// Returns the desired state that the API has stored.
pub(super) fn stored(service: &ServiceView) -> ServiceInput {
    ServiceInput::from(DesiredService {
        name: service.name.clone(),
        replicas: service.replicas,
        labels: service.labels.clone(),
        app: service.app.clone(),
        depends_on: service.depends_on.clone(),
        ingress: service.ingress.clone(),
        allow_from: service.allow_from.clone(),
        aliases: service.aliases.clone(),
        update: service.update.clone(),
        job: service.job.clone(),
        cron: service.cron.clone(),
        pod: PodSpec {
            kind: service.kind,
            containers: service.containers.clone(),
            on_disconnect: service.on_disconnect,
            stop_grace_period: service.stop_grace_period,
            drain: service.drain,
        },
    })
}

/// Returns the desired state as the API would store it.
///
/// # Errors
/// The invalid values.
pub(super) fn normal(input: &ServiceInput) -> Result<ServiceInput, Vec<Violation>> {
    input.clone().normalize().map(ServiceInput::from)
}

/// Returns the form as YAML.
pub(super) fn yaml(input: &ServiceInput) -> Result<String, CommandError> {
    serde_saphyr::to_string(input).map_err(|error| {
        CommandError::Other(format!("cannot write service {} as YAML: {error}", input.name()))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::client::fixtures;

    fn read(yaml: &str) -> ServiceInput {
        ServiceInput::read(&common::document::yaml(yaml).0[0]).into_result().unwrap()
    }

    #[test]
    fn a_file_and_the_stored_service_have_the_same_form() {
        let view = fixtures::service("web");
        let file = "name: web\nreplica: 3\nlabels: {tier: front}\nimage: nginx:1.27\nmemory: 64m\n\
                    environment: [PASSWORD=hunter2]\nports: ['8080:80']\n";
        let input = read(file);
        assert_eq!(normal(&input).unwrap(), stored(&view));
        let text = yaml(&stored(&view)).unwrap();
        let again = read(&text);
        assert_eq!(normal(&again).unwrap(), stored(&view), "{text}");
        assert!(text.starts_with("name: web\nreplicas: 3\n"), "{text}");
    }
}
