//! `aliases`: further names of a service within its app.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Violation;
use crate::ids::{AppName, ServiceName};
use crate::network::address::DOMAIN;

const MAX_ALIASES: usize = 64;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Aliases(Vec<String>);

impl Aliases {
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn normal(self) -> Self {
        let names: BTreeSet<String> = self.0.iter().map(|name| asked_for(name)).collect();
        Self(names.into_iter().collect())
    }

    pub(super) fn violations(&self, service: &ServiceName, app: Option<&AppName>) -> Vec<Violation> {
        let whole = |problem: String| Violation::new("/aliases", problem);
        let app_problem = match app {
            None if !self.is_empty() => Some(whole(
                "needs `app`: an alias is a name within an app; to all others a service has its own name"
                    .to_owned(),
            )),
            _ => None,
        };
        let too_many = self.0.len() > MAX_ALIASES;
        let too_many = too_many.then(|| whole(format!("a service has at most {MAX_ALIASES} aliases")));
        let wrong = self.0.iter().enumerate().filter_map(|(index, name)| {
            let problem = problem(&asked_for(name), service)?;
            Some(Violation::new(format!("/aliases/{index}"), format!("{name:?} {problem}")))
        });
        app_problem.into_iter().chain(too_many).chain(wrong).collect()
    }
}

/// As in aliases: lower case and hyphens.
pub fn asked_for(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase().replace('_', "-")
}

fn problem(name: &str, service: &ServiceName) -> Option<&'static str> {
    let is_label = |label: &str| {
        let is_of_dns = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty() && label.len() <= 63 && label.chars().all(is_of_dns)
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    if name.len() > 253 || !name.split('.').all(is_label) {
        Some("is no DNS name: a to z, digits and hyphens, with dots between parts of at most 63")
    } else if last == DOMAIN || last == "arpa" {
        Some("belongs to the cluster: an alias is `db` or a name such as `db.internal`")
    } else if last.chars().all(|c| c.is_ascii_digit()) {
        Some("reads as an address: an alias is a name")
    } else if last == "localhost" {
        Some("leads every container to itself: an alias is another name")
    } else if name == service.as_str() {
        Some("is the name of the service already")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn aliases(names: &[&str]) -> Aliases {
        Aliases(names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn problems(app: Option<&str>, names: &[&str]) -> Vec<String> {
        let app = app.map(|app| AppName::new(app).unwrap());
        let violations = aliases(names).violations(&ServiceName::new("shop-db").unwrap(), app.as_ref());
        violations.into_iter().map(|violation| violation.pointer.to_string()).collect()
    }

    #[test]
    fn names_are_kept_as_they_are_asked_for_each_once() {
        let normal = aliases(&["My_DB", "db.internal.", "my-db", "a"]).normal();
        assert_eq!(normal, aliases(&["a", "db.internal", "my-db"]));
        assert_eq!(normal.clone().normal(), normal);
    }

    #[test]
    fn what_is_no_name_of_an_app_is_found_at_its_place() {
        assert_eq!(problems(Some("shop"), &["database", "my_db", "DB.internal", "1a", "db1"]), [""; 0]);
        assert_eq!(problems(None, &["database"]), ["/aliases"]);
        let long = "a".repeat(64);
        let wrong =
            ["", "a b", "a..b", &long, "web.kubeleet", "kubeleet", "10.0.0.1", "localhost", "shop-db", "ok"];
        let places: Vec<String> = (0..9).map(|index| format!("/aliases/{index}")).collect();
        assert_eq!(problems(Some("shop"), &wrong), places);
        let many: Vec<String> = (0..=MAX_ALIASES).map(|number| format!("a{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(problems(Some("shop"), &many), ["/aliases"]);
    }
}
