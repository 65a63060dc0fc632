//! Volumes: named ones, those without a name, those in memory, and paths of the nodes. A file whose path is relative to
//! the Compose file is [no volume](files_beside).

use std::collections::{BTreeMap, BTreeSet};

use common::document::{Field, Node};

use super::{Draft, binary_amount, files_beside};
use crate::EXTENSION;
use crate::report::{NoteKind, Report};

pub(crate) fn volumes(field: Field<'_>, draft: &mut Draft<'_, '_>) {
    let Some(items) = field.value.items() else { return draft.set("volumes", field, field.value.clone()) };
    let mut volumes = Vec::new();
    for item in items {
        volumes.extend(match item.scalar() {
            Some(text) => short(&text, item, draft),
            None => long(item, draft),
        });
    }
    draft.set("volumes", field, Node::list(volumes, field.value.place()));
}

/// Returns the short form with those options that have an effect.
fn short(text: &str, item: &Node, draft: &mut Draft<'_, '_>) -> Option<Node> {
    let parts: Vec<&str> = text.split(':').collect();
    match parts[..] {
        [path, target, ..] if files_beside::is_beside(path) => {
            files_beside::add(path, target, item, draft);
            None
        }
        [path, _, ..] if path.starts_with('~') => {
            not_honoured(item, &of_home(path), draft);
            None
        }
        [source, target, options] => {
            let (known, others): (Vec<&str>, Vec<&str>) =
                options.split(',').partition(|option| matches!(*option, "" | "ro" | "rw"));
            for other in others {
                not_honoured(item, &format!("the option {other} has no effect"), draft);
            }
            let end = if known.contains(&"ro") { ":ro" } else { "" };
            Some(item.with_text(format!("{source}:{target}{end}")))
        }
        // What is wrong is said where volumes are read.
        _ => Some(item.clone()),
    }
}

/// Returns the long form without what has no effect.
fn long(item: &Node, draft: &mut Draft<'_, '_>) -> Option<Node> {
    if !item.is_map() {
        return Some(item.clone());
    }
    let text = |name: &str| item.get(name).and_then(Node::scalar).unwrap_or_default();
    match &*text("type") {
        "bind" if files_beside::is_beside(&text("source")) => {
            files_beside::add(&text("source"), &text("target"), item, draft);
            return None;
        }
        "bind" if text("source").starts_with('~') => {
            not_honoured(item, &of_home(&text("source")), draft);
            return None;
        }
        other @ ("npipe" | "cluster" | "image") => {
            not_honoured(item, &format!("the type {other} is not supported"), draft);
            return None;
        }
        _ => {}
    }
    let mut volume = Node::empty_map(item.place());
    for part in item.fields().filter(|part| !part.name.starts_with(EXTENSION)) {
        match part.name {
            "bind" | "volume" | "image" | "consistency" => {
                not_honoured(part.value, &format!("{} has no effect", part.name), draft);
            }
            "read_only" => volume.set(part.name, part.place, part.value.unquoted()),
            "tmpfs" if part.value.is_map() => volume.set(part.name, part.place, in_memory(part.value, draft)),
            _ => volume.set(part.name, part.place, part.value.clone()),
        }
    }
    Some(volume)
}

/// Returns the options of a volume in memory. A size of 0 is no limit.
fn in_memory(options: &Node, draft: &mut Draft<'_, '_>) -> Node {
    let mut known = Node::empty_map(options.place());
    for option in options.fields().filter(|option| !option.name.starts_with(EXTENSION)) {
        match option.name {
            "mode" => not_honoured(option.value, "tmpfs.mode has no effect", draft),
            "size" if option.value.scalar().as_deref() == Some("0") => {}
            "size" => known.set(option.name, option.place, binary_amount(option.value)),
            _ => known.set(option.name, option.place, option.value.clone()),
        }
    }
    known
}

fn of_home(path: &str) -> String {
    format!("{path} is in your home, which is not on the nodes: write an absolute path of theirs")
}

fn not_honoured(node: &Node, why: &str, draft: &mut Draft<'_, '_>) {
    if !node.is_blank() {
        draft.note(NoteKind::NotHonoured, node.place(), format!("volumes is not honoured in part: {why}"));
    }
}

/// Notes what is otherwise than with Compose about the named volumes that services use. `services` are the names of
/// services in the file, and what they became.
pub(crate) fn note_uses(root: &Node, services: &[(&str, Node)], report: &mut Report) {
    let mut uses: BTreeMap<String, Vec<(&str, &Node)>> = BTreeMap::new();
    let mut shared: BTreeSet<String> = BTreeSet::new();
    for (service, document) in services {
        let replicas =
            document.get("replicas").and_then(Node::scalar).and_then(|text| text.parse::<u64>().ok());
        for volume in document.get("volumes").and_then(Node::items).unwrap_or_default() {
            let Some(source) = source_of(volume).filter(|source| !source.starts_with('/')) else { continue };
            let of_source = uses.entry(source.clone()).or_default();
            if replicas.is_some_and(|count| count > 1) || of_source.iter().any(|(other, _)| other != service)
            {
                shared.insert(source);
            }
            of_source.push((*service, volume));
        }
    }
    for (name, uses) in &uses {
        for (service, volume) in uses {
            if shared.contains(name) {
                let detail = format!("volume {name} is not shared: each replica of a service has its own");
                report.note(NoteKind::Different, volume.place(), service, detail);
            }
            let declared = root.get("volumes").and_then(|declared| declared.get(name));
            let options = declared.into_iter().flat_map(Node::fields);
            for option in
                options.filter(|option| !option.name.starts_with(EXTENSION) && !option.value.is_blank())
            {
                let detail = format!(
                    "volumes.{name}.{} is not honoured: it is a plain volume of the replica's node",
                    option.name
                );
                report.note(NoteKind::NotHonoured, option.place, service, detail);
            }
        }
    }
}

/// Returns the name of a volume that has one.
fn source_of(volume: &Node) -> Option<String> {
    match volume.scalar() {
        Some(text) => text.split_once(':').map(|(source, _)| source.to_owned()),
        None => volume.get("source").and_then(Node::scalar).map(|text| text.into_owned()),
    }
}
