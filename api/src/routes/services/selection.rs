//! Selection of services for a list.

use model::ids::{AppName, ServiceName};
use model::service::Service;
use model::service::selector::LabelSelector;
use store::{RedisKey, StoreError};

use crate::http::params::{DEFAULT_PAGE_SIZE, page_size, parse_selector};
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;

pub(super) struct ServiceSelection {
    labels: LabelSelector,
    app: Option<AppName>,
    pub(super) limit: usize,
    after: Option<String>,
}

impl ServiceSelection {
    pub(super) fn read(pairs: Vec<(String, String)>) -> Result<Self, ApiProblem> {
        let invalid = |detail: String| ApiProblem::new(ProblemKind::InvalidQuery, detail);
        let mut labels = LabelSelector::default();
        let mut app = None;
        let mut limit = None;
        let mut after = None;
        for (name, value) in pairs {
            match name.as_str() {
                "label" => labels.extend(parse_selector(&value)?),
                "app" => app = Some(AppName::new(value).map_err(|error| invalid(format!("app: {error}")))?),
                "limit" => {
                    let number = value.parse().map_err(|_| invalid("limit: write a number".to_owned()))?;
                    limit = Some(number);
                }
                "after" => after = Some(value),
                other => {
                    let detail = format!("unknown parameter {other:?}; known: label, app, limit, after");
                    return Err(invalid(detail));
                }
            }
        }
        Ok(Self { labels, app, limit: page_size(limit)?, after })
    }

    fn matches(&self, service: &Service) -> bool {
        let is_of_app = self.app.is_none() || self.app == service.fields.app;
        is_of_app && self.labels.matches(&service.fields.labels)
    }

    /// One more than the limit if there is a next page.
    pub(super) async fn services(&self, app: &AppState) -> Result<Vec<Service>, ApiProblem> {
        let names = app.store.service_names().await;
        let mut names = names.map_err(|error| ApiProblem::of_key(error, RedisKey::Services))?;
        names.retain(|name| self.after.as_deref().is_none_or(|after| name.as_str() > after));
        let mut found = Vec::new();
        for chunk in names.chunks(DEFAULT_PAGE_SIZE) {
            let page = app.store.services(chunk).await?.found();
            found.extend(page.into_iter().filter(|service| self.matches(service)));
            if found.len() > self.limit {
                found.truncate(self.limit + 1);
                break;
            }
        }
        Ok(found)
    }
}

/// Returns those of `names` whose services match.
pub(crate) async fn select_names(
    app: &AppState,
    names: &[ServiceName],
    matches: impl Fn(&Service) -> bool,
) -> Result<Vec<ServiceName>, StoreError> {
    let mut selected = Vec::new();
    for chunk in names.chunks(DEFAULT_PAGE_SIZE) {
        let services = app.store.services(chunk).await?.found();
        selected.extend(services.into_iter().filter(&matches).map(|service| service.name));
    }
    Ok(selected)
}
