//! The order in which services are written, and which are left as they are after a refusal. Pure.

use std::collections::{BTreeMap, BTreeSet};

use model::ids::ServiceName;
use model::spec::ServiceInput;

/// A service follows those that it depends on; otherwise the order of the files stays.
pub(crate) fn in_order_of_need(services: Vec<ServiceInput>) -> Vec<ServiceInput> {
    let names: Vec<ServiceName> = services.iter().map(|service| service.name().clone()).collect();
    let mut left = services.into_iter().map(|service| (service.name().clone(), service)).collect();
    let mut ordered = Vec::new();
    names.iter().for_each(|name| place(name, &mut left, &mut ordered));
    ordered
}

fn place(
    name: &ServiceName,
    left: &mut BTreeMap<ServiceName, ServiceInput>,
    ordered: &mut Vec<ServiceInput>,
) {
    // Not in the files, placed already, or in a circle, which the API refuses.
    let Some(service) = left.remove(name) else { return };
    service.fields.depends_on.services().for_each(|needed| place(&needed, left, ordered));
    ordered.push(service);
}

/// Groups for concurrent writes. A new one begins with a service that depends on one of the group, on which
/// one depends, or that may take over routes or names.
pub(crate) fn written_at_once(services: &[ServiceInput]) -> Vec<&[ServiceInput]> {
    let mut parts = Vec::new();
    let mut start = 0;
    let (mut names, mut awaited) = (BTreeSet::new(), BTreeSet::new());
    for (index, service) in services.iter().enumerate() {
        let depends_on: Vec<ServiceName> = service.fields.depends_on.services().collect();
        let takes_over = !service.fields.ingress.is_empty() || !service.fields.aliases.is_empty();
        let waits = takes_over
            || awaited.contains(service.name())
            || depends_on.iter().any(|name| names.contains(name));
        if waits && index > start {
            parts.push(&services[start..index]);
            start = index;
            names.clear();
            awaited.clear();
        }
        names.insert(service.name().clone());
        awaited.extend(depends_on);
    }
    parts.push(&services[start..]);
    parts
}

/// Services that were refused, and those that depend on them, directly or not.
#[derive(Default)]
pub(crate) struct NotWritten(BTreeSet<ServiceName>);

impl NotWritten {
    pub(crate) fn add(&mut self, service: &ServiceInput) {
        self.0.insert(service.name().clone());
    }

    /// Returns one that `service` depends on.
    pub(crate) fn needed_by(&self, service: &ServiceInput) -> Option<ServiceName> {
        service.fields.depends_on.services().find(|name| self.0.contains(name))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn read(services: &[&str]) -> Vec<ServiceInput> {
        let service = |yaml: &&str| {
            let text = format!("image: x\n{yaml}");
            ServiceInput::read(&document::yaml(&text).0[0]).into_result().unwrap()
        };
        services.iter().map(service).collect()
    }

    fn names(services: &[ServiceInput]) -> String {
        services.iter().map(|service| service.name().as_str()).collect()
    }

    #[test]
    fn a_service_is_written_after_those_that_it_depends_on() {
        for (services, expected) in [
            (&["name: c", "name: a", "name: b"][..], "cab"),
            (&["name: a\ndepends_on: [c]", "name: b", "name: c\ndepends_on: [d]", "name: d"], "dcab"),
            (&["name: a\ndepends_on: [b]", "name: b\ndepends_on: [a]"], "ba"),
            (&["name: a\ndepends_on: [elsewhere]", "name: b"], "ab"),
        ] {
            assert_eq!(names(&in_order_of_need(read(services))), expected);
        }
    }

    #[test]
    fn services_that_need_an_order_are_not_written_at_once() {
        for (services, expected) in [
            (&["name: a", "name: b", "name: c"][..], "abc"),
            (&["name: a", "name: b\ndepends_on: [a]", "name: c"], "a bc"),
            (&["name: a\ndepends_on: [b]", "name: b\ndepends_on: [a]"], "a b"),
            (&["name: a", "name: b\ningress: [{host: web.example, port: 80}]", "name: c"], "a bc"),
            (&["name: a\naliases: [x]\napp: s", "name: b", "name: c\naliases: [y]\napp: s"], "ab c"),
            (&[], ""),
        ] {
            let services = read(services);
            let parts: Vec<String> = written_at_once(&services).into_iter().map(names).collect();
            assert_eq!(parts.join(" "), expected);
        }
    }
}
