//! Problems in `relations`, which is derived from the records of services. Pure.

use std::collections::BTreeSet;

use super::finding::{Finding, Repair, finding};
use super::key_copy::KeyCopy;

pub(super) fn missing_and_stale(copy: &KeyCopy) -> Vec<Finding> {
    let related = copy.service_relations.iter().flat_map(|(owner, names)| {
        names.split_whitespace().map(move |name| (name.as_bytes(), owner.as_bytes()))
    });
    let wanted: BTreeSet<(&[u8], &[u8])> = related.collect();
    let known: BTreeSet<(&[u8], &[u8])> = copy
        .relations
        .iter()
        .flat_map(|(name, owners)| owners_in(owners).map(move |owner| (name.as_slice(), owner)))
        .collect();
    let missing = wanted.difference(&known).map(|(name, owner)| {
        let (name, owner) = (String::from_utf8_lossy(name), String::from_utf8_lossy(owner));
        let problem = format!("lacks {owner} at {name}, which its rules for placement name");
        finding("relations", problem, Repair::add_relation(&name, &owner))
    });
    let stale = known.difference(&wanted).map(|(name, owner)| {
        let repair = Repair::remove_relation(name, owner);
        let (name, owner) = (String::from_utf8_lossy(name), String::from_utf8_lossy(owner));
        finding("relations", format!("has {owner:.100} at {name:.100}, which no rule of it names"), repair)
    });
    missing.chain(stale).collect()
}

/// Any program may have written them.
fn owners_in(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|owner| !owner.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_that_services_lack_or_do_not_have_are_found() {
        let text = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let bytes = |(key, value): (&str, &str)| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
        let copy = KeyCopy {
            service_relations: [("db", "cache web"), ("web", ""), ("api", "web")].map(text).into(),
            relations: [("web", "api gone"), ("cache", "db")].map(bytes).into(),
            ..KeyCopy::default()
        };
        let found: Vec<String> = missing_and_stale(&copy).iter().map(Finding::in_words).collect();
        let expected = [
            "lacks db at web, which its rules for placement name; adds db",
            "has gone at web, which no rule of it names; removes gone",
        ];
        assert_eq!(found, expected);
    }
}
