//! Problems in `relations`, which is derived from the records of services. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{Finding, Repair, finding};
use super::key_copy::KeyCopy;

pub(super) fn missing_and_stale(copy: &KeyCopy) -> Vec<Finding> {
    let wanted: BTreeSet<(&str, &str)> =
        pairs(&copy.service_relations).map(|(owner, name)| (name, owner)).collect();
    let known: BTreeSet<(&str, &str)> = pairs(&copy.relations).collect();
    let missing = wanted.difference(&known).map(|(name, owner)| {
        let problem = format!("lacks {owner} at {name}, which its rules for placement name");
        finding("relations", problem, Repair::add_relation(name, owner))
    });
    let stale = known.difference(&wanted).map(|(name, owner)| {
        let problem = format!("has {owner:.100} at {name:.100}, which no rule of it names");
        finding("relations", problem, Repair::remove_relation(name, owner))
    });
    missing.chain(stale).collect()
}

fn pairs(texts: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    texts.iter().flat_map(|(name, text)| text.split_whitespace().map(|other| (name.as_str(), other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_that_services_lack_or_do_not_have_are_found() {
        let of = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let copy = KeyCopy {
            service_relations: of(&[("db", "cache web"), ("web", ""), ("api", "web")]),
            relations: of(&[("web", "api gone"), ("cache", "db")]),
            ..KeyCopy::default()
        };
        let found: Vec<String> = missing_and_stale(&copy)
            .iter()
            .map(|found| format!("{}; {}", found.problem, found.repair()))
            .collect();
        let expected = [
            "lacks db at web, which its rules for placement name; adds db",
            "has gone at web, which no rule of it names; removes gone",
        ];
        assert_eq!(found, expected);
    }
}
