//! Selects the active services, each after its dependencies.

use std::collections::BTreeSet;

use document::{DocumentNode, nearest};

use crate::compose_document::text_of;
use crate::report::Report;

/// Each step uses stack.
const MAX_CHAIN: usize = 500;

const ALL: &str = "*";

pub(crate) fn active(services: &DocumentNode, profiles: &BTreeSet<String>) -> BTreeSet<String> {
    let is_active = |service: &DocumentNode| match service.get("profiles").and_then(DocumentNode::items) {
        None | Some([]) => true,
        Some(own) => {
            profiles.contains(ALL)
                || own
                    .iter()
                    .any(|profile| profile.scalar().is_some_and(|name| profiles.contains(name.as_ref())))
        }
    };
    let active = services.fields().filter(|service| is_active(service.value));
    active.map(|service| service.name.to_owned()).collect()
}

pub(crate) fn sorted(services: &DocumentNode, active: &BTreeSet<String>, report: &mut Report) -> Vec<String> {
    let mut sorting = Sorting { services, active, report, done: Vec::new(), way: Vec::new() };
    for service in services.fields().filter(|service| active.contains(service.name)) {
        sorting.visit(service.name);
    }
    sorting.done
}

struct Sorting<'a> {
    services: &'a DocumentNode,
    active: &'a BTreeSet<String>,
    report: &'a mut Report,
    done: Vec<String>,
    way: Vec<String>,
}

impl Sorting<'_> {
    fn visit(&mut self, name: &str) {
        if self.done.iter().any(|done| done == name) {
            return;
        }
        if self.way.len() >= MAX_CHAIN {
            let detail = format!("more than {MAX_CHAIN} services depend on each other in a row");
            let place = self.services.field(name).and_then(|service| service.place);
            return self.report.mistake(place, detail);
        }
        self.way.push(name.to_owned());
        let needed = self.services.get(name).and_then(|service| service.get("depends_on")).cloned();
        for needed in needed.iter().flat_map(DocumentNode::fields) {
            let is_required = text_of(needed.value, "required").as_deref() != Some("false");
            if let Some(at) = self.way.iter().position(|waiting| waiting == needed.name) {
                let path = self.way[at..].join(" -> ");
                let detail = format!("depends_on goes in a circle: {path} -> {}", needed.name);
                self.report.mistake(needed.place, detail);
            } else if self.active.contains(needed.name) {
                self.visit(needed.name);
            } else if is_required {
                let detail = self.missing(name, needed.name);
                self.report.mistake(needed.place, detail);
            }
        }
        self.way.pop();
        self.done.push(name.to_owned());
    }

    fn missing(&self, service: &str, needed: &str) -> String {
        let start = format!("{service} depends on {needed:?}");
        if self.services.has_field(needed) {
            return format!(
                "{start}, whose profile is not active; add --profile, or take the dependency out"
            );
        }
        let names: Vec<&str> = self.services.fields().map(|service| service.name).collect();
        match nearest(needed, &names) {
            Some(near) => format!("{start}, which is no service; did you mean {near:?}?"),
            None => format!("{start}, which is no service of these files"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::merge::first;
    use crate::testing::service_of;

    fn order(yaml: &str, profiles: &[&str]) -> Result<Vec<String>, Vec<String>> {
        let services = first(&service_of(yaml), "services");
        let profiles = profiles.iter().map(|profile| (*profile).to_owned()).collect();
        let mut report = Report::default();
        let sorted = sorted(&services, &active(&services, &profiles), &mut report);
        match report.has_mistakes() {
            false => Ok(sorted),
            true => Err(report.into_mistakes().into_iter().map(|found| found.detail).collect()),
        }
    }

    #[test]
    fn a_service_comes_after_those_that_it_depends_on() {
        for (yaml, profiles, expected) in [
            ("{a: {}, b: {}}", vec![], "a b"),
            ("{web: {depends_on: [db, cache]}, cache: {}, db: {}}", vec![], "db cache web"),
            ("{a: {depends_on: [b]}, b: {depends_on: {c: {condition: x}}}, c: {}}", vec![], "c b a"),
            ("{a: {}, b: {profiles: [debug]}}", vec![], "a"),
            ("{a: {}, b: {profiles: [debug, x]}}", vec!["x"], "a b"),
            ("{a: {profiles: [y]}, b: {profiles: [x]}}", vec!["*"], "a b"),
            ("{a: {depends_on: {b: {required: false}}}, b: {profiles: [x]}}", vec![], "a"),
        ] {
            assert_eq!(order(yaml, &profiles).unwrap().join(" "), expected, "{yaml}");
        }
    }

    #[test]
    fn circles_and_missing_services_are_refused() {
        for (yaml, detail) in [
            (
                "{a: {depends_on: [b]}, b: {depends_on: [c]}, c: {depends_on: [b]}}",
                "depends_on goes in a circle: b -> c -> b",
            ),
            ("{a: {depends_on: [a]}}", "depends_on goes in a circle: a -> a"),
            (
                "{web: {depends_on: [databse]}, database: {}}",
                "web depends on \"databse\", which is no service; did",
            ),
            ("{a: {depends_on: [b]}, b: {profiles: [x]}}", "a depends on \"b\", whose profile is not active"),
        ] {
            let found = order(yaml, &[]).unwrap_err();
            assert!(found.len() == 1 && found[0].starts_with(detail), "{found:?}");
        }
    }
}
