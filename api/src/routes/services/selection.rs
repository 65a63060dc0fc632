//! Which services a list shows.

use std::collections::BTreeMap;

use common::service::Service;
use common::store::StoreError;

use crate::problem::{ApiProblem, Kind};
use crate::query;
use crate::state::App;

/// Which services to list.
pub(super) struct Selection {
    labels: BTreeMap<String, String>,
    /// How many it has at most.
    pub(super) limit: usize,
    after: Option<String>,
}

impl Selection {
    /// Reads the query; `label` may stand there several times.
    pub(super) fn read(pairs: Vec<(String, String)>) -> Result<Self, ApiProblem> {
        let bad = |detail: String| ApiProblem::new(Kind::InvalidQuery, detail);
        let (mut labels, mut limit, mut after) = (BTreeMap::new(), None, None);
        for (name, value) in pairs {
            match name.as_str() {
                "label" => {
                    let (key, value) =
                        value.split_once('=').ok_or_else(|| bad("label: write key=value".to_owned()))?;
                    labels.insert(key.to_owned(), value.to_owned());
                }
                "limit" => {
                    let number = value.parse().map_err(|_| bad("limit: write a number".to_owned()))?;
                    limit = Some(number);
                }
                "after" => after = Some(value),
                other => return Err(bad(format!("{other:?} is no parameter here: label, limit, after"))),
            }
        }
        Ok(Self { labels, limit: query::limit(limit)?, after })
    }

    fn takes(&self, service: &Service) -> bool {
        self.labels.iter().all(|(key, value)| service.labels.get(key) == Some(value))
    }

    /// One more than the limit, if there are so many.
    pub(super) async fn services(&self, app: &App) -> Result<Vec<Service>, StoreError> {
        let mut names = app.store.service_names().await?;
        names.retain(|name| self.after.as_deref().is_none_or(|after| name.as_str() > after));
        let mut found = Vec::new();
        for chunk in names.chunks(query::PAGE) {
            let page = app.store.services(chunk).await?;
            found.extend(page.into_iter().filter(|service| self.takes(service)));
            if found.len() > self.limit {
                found.truncate(self.limit + 1);
                break;
            }
        }
        Ok(found)
    }
}
