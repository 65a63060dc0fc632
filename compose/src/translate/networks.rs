//! As with Compose, services reach each other if they share a network. A file without networks restricts
//! nothing.

use std::collections::{BTreeMap, BTreeSet};

use document::DocumentNode;

use crate::names::text_at;
use crate::project::{Allowance, EXTENSION};
use crate::report::{NoteKind, Report};
use crate::values;

const DEFAULT: &str = "default";
const HONOURED: [&str; 2] = ["external", "name"];

pub(crate) fn allow_networks(
    root: &DocumentNode,
    documents: &mut [(&str, &mut DocumentNode)],
    names: &BTreeMap<String, String>,
    allowed: &BTreeSet<Allowance>,
    report: &mut Report,
) {
    let Some(services) = root.get("services") else { return };
    let of_service = |name: &str| services.get(name).and_then(|service| service.field("networks"));
    let has_default = declared(root, DEFAULT).is_some_and(|network| !network.is_blank());
    if !has_default && !documents.iter().any(|(name, _)| of_service(name).is_some()) {
        return;
    }
    let networks: BTreeMap<String, BTreeSet<String>> = documents
        .iter()
        .map(|(name, _)| {
            let named = of_service(name).into_iter().flat_map(|field| field.value.fields());
            let mut named: BTreeSet<String> = named.map(|network| network.name.to_owned()).collect();
            if named.is_empty() {
                named.insert(DEFAULT.to_owned());
            }
            ((*name).to_owned(), named)
        })
        .collect();
    for (name, document) in documents {
        let own = &networks[*name];
        note_uses(root, name, own, allowed, report);
        if own.iter().any(|network| is_external(root, network)) {
            continue;
        }
        let place = of_service(name).and_then(|field| field.place);
        let reach = networks.iter().filter(|(other, theirs)| *other != name && !own.is_disjoint(theirs));
        let reach = reach.filter_map(|(other, _)| Some(text_at(names.get(other)?, place)));
        document.set("allow_from", place, DocumentNode::list(reach.collect(), place));
    }
}

pub(super) fn not_isolated(service: &str, asked: &str) -> String {
    format!(
        "{service}: {asked}, and kubeleet cannot keep containers from what is outside: take it out, or add `--allow {}` to \
         run it without that",
        Allowance::NoIsolation.word()
    )
}

fn declared<'a>(root: &'a DocumentNode, network: &str) -> Option<&'a DocumentNode> {
    root.get("networks")?.get(network)
}

fn is_external(root: &DocumentNode, network: &str) -> bool {
    declared(root, network).is_some_and(values::is_external)
}

fn note_uses(
    root: &DocumentNode,
    service: &str,
    networks: &BTreeSet<String>,
    allowed: &BTreeSet<Allowance>,
    report: &mut Report,
) {
    let field = |network: &str| root.get("services")?.get(service)?.get("networks")?.field(network);
    for network in networks {
        let place = field(network).and_then(|field| field.place);
        if is_external(root, network) {
            let detail =
                format!("network {network} is external: the service is reached by all of the cluster");
            report.note(NoteKind::Different, place, service, detail);
        }
        match declared(root, network) {
            None if network != DEFAULT => {
                report.mistake(place, format!("{service}: the file declares no network {network}"));
            }
            None => {}
            Some(declared) => {
                let is_option = |name: &str| !name.starts_with(EXTENSION) && !HONOURED.contains(&name);
                for option in declared.fields().filter(|one| is_option(one.name) && !one.value.is_blank()) {
                    if option.name == "internal" && !allowed.contains(&Allowance::NoIsolation) {
                        report.mistake(
                            option.place,
                            not_isolated(service, &format!("network {network} is internal")),
                        );
                        continue;
                    }
                    let detail = format!(
                        "networks.{network}.{} is not honoured: a network says which services reach each other by name",
                        option.name
                    );
                    report.note(NoteKind::NotHonoured, option.place, service, detail);
                }
            }
        }
    }
}
