//! Problems in `routes`, which is derived from the records of services. Pure.

use std::collections::BTreeMap;

use super::finding::{Finding, Repair, finding};
use super::key_copy::KeyCopy;

/// If several services have one route, the one in `routes` keeps it.
fn wanted(copy: &KeyCopy) -> BTreeMap<&str, Vec<&str>> {
    let mut wanted: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let lines = copy.service_routes.values().flat_map(|text| text.lines());
    for (route, target) in lines.filter_map(|line| line.split_once(' ')) {
        wanted.entry(route).or_default().push(target);
    }
    wanted
}

pub(super) fn missing_and_stale(copy: &KeyCopy) -> Vec<Finding> {
    let wanted = wanted(copy);
    let missing = wanted.iter().filter(|(route, _)| !copy.routes.contains_key(route.as_bytes()));
    let missing = missing.filter_map(|(route, targets)| {
        let (target, service) = (targets.first()?, service_of(targets.first()?));
        let repair = Repair::add_route(route, target, service);
        Some(finding("routes", format!("lacks {route} of service {service}"), repair))
    });
    let stale = copy.routes.iter().filter_map(|(route, target)| {
        let (name, value) = (String::from_utf8_lossy(route), String::from_utf8_lossy(target));
        let known = wanted.get(&*name).is_some_and(|targets| targets.contains(&&*value));
        let repair = Repair::remove_route(route, target, service_of(&value));
        let problem = format!("has {name:.100} -> {value:.100}, which no service has");
        (!known).then(|| finding("routes", problem, repair))
    });
    let shared = wanted.iter().filter(|(_, targets)| targets.len() > 1).map(|(route, targets)| {
        let services: Vec<&str> = targets.iter().map(|target| service_of(target)).collect();
        let repair = Repair::Decide { what: "take it out of the ingress of all but one of them" };
        finding("routes", format!("{route} is in the ingress of services {}", services.join(" and ")), repair)
    });
    missing.chain(stale).chain(shared).collect()
}

fn service_of(target: &str) -> &str {
    target.split(' ').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_that_services_lack_or_do_not_have_are_found() {
        let of = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let bytes = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
        };
        let copy = KeyCopy {
            service_routes: of(&[
                ("web", "web.example/ web 80\ntcp:1 web 1\nboth/ web 80"),
                ("api", "api.example/ api 80\nboth/ api 80"),
                ("none", ""),
            ]),
            routes: bytes(&[
                ("web.example/", "web 80"),
                ("api.example/", "api 81"),
                ("old/", "gone 80"),
                ("both/", "api 80"),
            ]),
            ..KeyCopy::default()
        };
        let found: Vec<String> = missing_and_stale(&copy).iter().map(Finding::in_words).collect();
        let expected = [
            "lacks tcp:1 of service web; adds tcp:1",
            "has api.example/ -> api 81, which no service has; removes the entry",
            "has old/ -> gone 80, which no service has; removes the entry",
            "both/ is in the ingress of services api and web; nothing: take it out of the ingress of all but one of them",
        ];
        assert_eq!(found, expected);
    }
}
