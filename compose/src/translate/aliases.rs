//! The `aliases` of networks, those of `links`, and `container_name`, which Compose also resolves. An alias
//! leads to one service.

use std::collections::BTreeMap;

use document::{DocumentNode, TextPosition};
use model::spec::asked_for;

use crate::implied::link_names;
use crate::names::{label, text_at};
use crate::report::{NoteKind, Report};

struct Alias {
    name: String,
    place: Option<TextPosition>,
    is_container_name: bool,
}

pub(crate) fn name_services(
    root: &DocumentNode,
    documents: &mut [(&str, &mut DocumentNode)],
    names: &BTreeMap<String, String>,
    report: &mut Report,
) {
    let mut holders: BTreeMap<String, String> =
        names.keys().map(|name| (label(name), name.clone())).collect();
    let mut aliases: BTreeMap<&str, Vec<DocumentNode>> = BTreeMap::new();
    let services = root.get("services");
    let written = documents.iter().filter_map(|(name, _)| Some((*name, written(services?.get(name)?))));
    let mut written: Vec<(&str, Alias)> =
        written.flat_map(|(name, aliases)| aliases.into_iter().map(move |alias| (name, alias))).collect();
    for (service, name, place) in link_names(root) {
        let linked = documents.iter().find(|(known, _)| **known == service).map(|(known, _)| *known);
        written.extend(linked.map(|known| (known, Alias { name, place, is_container_name: false })));
    }
    // Network aliases come first: a container's name was perhaps never used as a host name.
    written.sort_by_key(|(_, alias)| alias.is_container_name);
    for (service, alias) in written {
        let asked = asked_for(&alias.name);
        let holder = holders.entry(asked.clone()).or_insert_with(|| service.to_owned());
        let is_own_name = asked == label(service) || names.get(service) == Some(&asked);
        if holder == service && !is_own_name {
            let names = aliases.entry(service).or_default();
            if !names.iter().any(|known| known.scalar().is_some_and(|known| known == alias.name)) {
                names.push(text_at(&alias.name, alias.place));
            }
        } else if holder != service && alias.is_container_name {
            let detail = format!("the name {} leads to service {holder}, which is called so", alias.name);
            report.note(NoteKind::Different, alias.place, service, detail);
        } else if holder != service {
            let detail = format!(
                "{service}: the name {} is that of {holder}: here a name leads to the pods of one service",
                alias.name
            );
            report.mistake(alias.place, detail);
        }
    }
    for (name, document) in documents {
        if let Some(aliases) = aliases.remove(*name) {
            let place = aliases.first().and_then(DocumentNode::place);
            document.set("aliases", place, DocumentNode::list(aliases, place));
        }
    }
}

fn written(service: &DocumentNode) -> Vec<Alias> {
    let alias = |node: &DocumentNode, is_container_name| {
        let name = node.scalar().filter(|name| !name.is_empty())?.into_owned();
        Some(Alias { name, place: node.place(), is_container_name })
    };
    let networks = service.get("networks").into_iter().flat_map(DocumentNode::fields);
    let aliases = networks.filter_map(|network| network.value.get("aliases")?.items()).flatten();
    let of_networks = aliases.filter_map(|node| alias(node, false));
    let of_container = service.get("container_name").and_then(|node| alias(node, true));
    of_networks.chain(of_container).collect()
}
