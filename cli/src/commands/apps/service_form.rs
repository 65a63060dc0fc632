//! A service in one form, whether from a file or the API, for `edit` and `diff`.

use api_types::ServiceView;
use model::spec::{ServiceInput, Violation};

use crate::commands::error::{CommandError, CommandResult};

pub(crate) fn stored(service: &ServiceView) -> ServiceInput {
    ServiceInput::from(service.desired())
}

/// As the API would store it.
pub(crate) fn normal(input: &ServiceInput) -> Result<ServiceInput, Vec<Violation>> {
    input.clone().normalize().map(ServiceInput::from)
}

pub(crate) fn yaml(input: &ServiceInput) -> CommandResult<String> {
    serde_saphyr::to_string(input).map_err(|error| {
        CommandError::Other(format!("cannot write service {} as YAML: {error}", input.name()))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use testkit::api_fixtures as fixtures;

    use super::*;

    fn read(yaml: &str) -> ServiceInput {
        ServiceInput::read(&document::yaml(yaml).0[0]).into_result().unwrap()
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
