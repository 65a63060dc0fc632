//! `allow_from`: the services that reach this one by name.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Violation;
use crate::ids::{AppName, ServiceName};

const MAX_ALLOWED: usize = 256;
const WHOLE: &str = ".kubeleet";

/// Its own pods always reach it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AllowFrom(BTreeSet<String>);

impl AllowFrom {
    /// Skips invalid names.
    pub fn services(&self) -> impl Iterator<Item = ServiceName> {
        self.0.iter().filter_map(|name| ServiceName::new(whole(name)).ok())
    }

    /// Within an app, short names mean its services; names of other apps end with `.kubeleet`.
    pub(super) fn of_app(self, app: Option<&AppName>) -> Self {
        Self(self.0.into_iter().map(|name| in_app(app, name)).collect())
    }

    pub(super) fn violations(&self) -> Vec<Violation> {
        let too_many = (self.0.len() > MAX_ALLOWED).then(|| {
            Violation::new(
                "/allow_from",
                format!("a service allows at most {MAX_ALLOWED} others; without it, all"),
            )
        });
        let wrong = self.0.iter().enumerate().filter_map(|(index, name)| {
            let error = ServiceName::new(whole(name)).err()?;
            Some(Violation::new(format!("/allow_from/{index}"), error.to_string()))
        });
        too_many.into_iter().chain(wrong).collect()
    }
}

/// The name of a service as it is stored.
pub(super) fn in_app(app: Option<&AppName>, name: String) -> String {
    let Some(app) = app else { return whole(&name).to_owned() };
    let is_of_app = |name: &str| ServiceName::new(name).is_ok_and(|name| app.short_name(&name).is_some());
    if is_of_app(whole(&name)) {
        whole(&name).to_owned()
    } else if name.ends_with(WHOLE) {
        name
    } else {
        format!("{app}-{name}")
    }
}

pub(super) fn whole(name: &str) -> &str {
    name.strip_suffix(WHOLE).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn of_app(app: Option<&str>, names: &[&str]) -> AllowFrom {
        let app = app.map(|app| AppName::new(app).unwrap());
        AllowFrom(names.iter().map(|name| (*name).to_owned()).collect()).of_app(app.as_ref())
    }

    #[test]
    fn names_are_those_in_the_app_unless_they_are_whole_and_stay_what_they_are() {
        for (app, names, normal, whole) in [
            (None, vec!["web", "api.kubeleet"], vec!["api", "web"], "api web"),
            (
                Some("shop"),
                vec!["db", "shop-web", "gate.kubeleet", "shop-job.kubeleet"],
                vec!["gate.kubeleet", "shop-db", "shop-job", "shop-web"],
                "gate shop-db shop-job shop-web",
            ),
            (Some("shop"), vec![], vec![], ""),
        ] {
            let allowed = of_app(app, &names);
            assert_eq!(allowed, of_app(app, &normal), "{names:?}");
            assert_eq!(serde_json::to_value(&allowed).unwrap(), serde_json::json!(normal));
            let services: Vec<String> = allowed.services().map(|name| name.to_string()).collect();
            assert_eq!(services.join(" "), whole);
        }
    }

    #[test]
    fn what_is_no_name_is_found_with_its_place() {
        let found = of_app(None, &["Web", "api", "a.b.kubeleet"]).violations();
        let pointers: Vec<&str> = found.iter().map(|violation| violation.pointer.as_str()).collect();
        assert_eq!(pointers, ["/allow_from/0", "/allow_from/1"]);
        let many: Vec<String> = (0..=MAX_ALLOWED).map(|number| format!("s{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(of_app(None, &many).violations().len(), 1);
    }
}
