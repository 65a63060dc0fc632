//! Volumes: named ones, those without a name, those in memory, and paths of the nodes. A file whose path is
//! relative to the Compose file is [no volume](files_beside).

use std::collections::{BTreeMap, BTreeSet};

use common::document::{DocumentNode, Field};

use super::{ServiceDraft, binary_amount, files_beside};
use crate::EXTENSION;
use crate::report::{NoteKind, Report};

pub(crate) fn volumes(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    let Some(items) = field.value.items() else { return draft.set("volumes", field, field.value.clone()) };
    let mut volumes = Vec::new();
    for item in items {
        volumes.extend(match item.scalar() {
            Some(text) => short(&text, item, draft),
            None => long(item, draft),
        });
    }
    draft.set("volumes", field, DocumentNode::list(volumes, field.value.place()));
}

/// Returns the short form with those options that have an effect.
fn short(text: &str, item: &DocumentNode, draft: &mut ServiceDraft<'_, '_>) -> Option<DocumentNode> {
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
fn long(item: &DocumentNode, draft: &mut ServiceDraft<'_, '_>) -> Option<DocumentNode> {
    if !item.is_map() {
        return Some(item.clone());
    }
    let text = |name: &str| item.get(name).and_then(DocumentNode::scalar).unwrap_or_default();
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
    let mut volume = DocumentNode::empty_map(item.place());
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
fn in_memory(options: &DocumentNode, draft: &mut ServiceDraft<'_, '_>) -> DocumentNode {
    let mut known = DocumentNode::empty_map(options.place());
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

fn not_honoured(node: &DocumentNode, why: &str, draft: &mut ServiceDraft<'_, '_>) {
    if !node.is_blank() {
        draft.note(NoteKind::NotHonoured, node.place(), format!("volumes is not honoured in part: {why}"));
    }
}

/// Returns the named volumes that several services have. `services` are the names of services in the file,
/// and what they became.
pub(crate) fn common_volumes(services: &[(&str, &mut DocumentNode)]) -> BTreeSet<String> {
    let mut users: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (service, document) in services {
        for (source, _) in named(document) {
            users.entry(source).or_default().insert(service);
        }
    }
    users.into_iter().filter(|(_, users)| users.len() > 1).map(|(source, _)| source).collect()
}

/// Makes these volumes shared ones, unless the file says what kind they are.
pub(crate) fn share_volumes(common: &BTreeSet<String>, services: &mut [(&str, &mut DocumentNode)]) {
    for (_, document) in services {
        let Some(field) = document.field("volumes") else { continue };
        let (field_place, place) = (field.place, field.value.place());
        let Some(items) = field.value.items() else { continue };
        let share = |volume: &DocumentNode| match source_of(volume) {
            Some(source) if common.contains(&source) => shared(volume, &source),
            _ => volume.clone(),
        };
        let volumes = DocumentNode::list(items.iter().map(share).collect(), place);
        document.set("volumes", field_place, volumes);
    }
}

fn shared(volume: &DocumentNode, source: &str) -> DocumentNode {
    let place = volume.place();
    let mut long = match volume.scalar() {
        None => volume.clone(),
        Some(text) => {
            let mut long = DocumentNode::empty_map(place);
            let mut parts = text.split(':').skip(1);
            long.set("source", place, volume.with_text(source.to_owned()));
            long.set("target", place, volume.with_text(parts.next().unwrap_or_default().to_owned()));
            if parts.next() == Some("ro") {
                long.set("read_only", place, volume.with_text("true".to_owned()).unquoted());
            }
            long
        }
    };
    if !long.has_field("kind") {
        long.set("kind", place, volume.with_text("shared".to_owned()));
    }
    long
}

/// Notes what is otherwise than with Compose about the named volumes that services have. `common` are those
/// of several services, which are shared if `shares_volumes`.
pub(crate) fn note_uses(
    root: &DocumentNode,
    services: &[(&str, &mut DocumentNode)],
    common: &BTreeSet<String>,
    shares_volumes: bool,
    report: &mut Report,
) {
    for (service, document) in services {
        let replicas =
            document.get("replicas").and_then(DocumentNode::scalar).and_then(|text| text.parse::<u64>().ok());
        let has_replicas = replicas.is_some_and(|count| count > 1);
        for (name, volume) in named(document) {
            let is_shared = shares_volumes && common.contains(&name);
            if !is_shared && (has_replicas || common.contains(&name)) {
                let detail = format!("volume {name} is not shared: each replica of a service has its own");
                report.note(NoteKind::Different, volume.place(), service, detail);
            }
            let declared = root.get("volumes").and_then(|declared| declared.get(&name));
            let options = declared.into_iter().flat_map(DocumentNode::fields);
            let what = if is_shared {
                "in the directory that nodes share"
            } else {
                "a plain volume of the replica's node"
            };
            for option in
                options.filter(|option| !option.name.starts_with(EXTENSION) && !option.value.is_blank())
            {
                let detail = format!("volumes.{name}.{} is not honoured: it is {what}", option.name);
                report.note(NoteKind::NotHonoured, option.place, service, detail);
            }
        }
    }
}

/// Returns the named volumes of a service.
fn named(document: &DocumentNode) -> impl Iterator<Item = (String, &DocumentNode)> {
    let volumes = document.get("volumes").and_then(DocumentNode::items).unwrap_or_default().iter();
    let named = volumes.filter_map(|volume| Some((source_of(volume)?, volume)));
    named.filter(|(source, _)| !source.starts_with('/'))
}

/// Returns the name of a volume that has one.
fn source_of(volume: &DocumentNode) -> Option<String> {
    match volume.scalar() {
        Some(text) => text.split_once(':').map(|(source, _)| source.to_owned()),
        None => volume.get("source").and_then(DocumentNode::scalar).map(|text| text.into_owned()),
    }
}
