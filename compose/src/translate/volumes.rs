//! Volumes: named, anonymous and in-memory ones, and paths of the nodes.

use std::collections::{BTreeMap, BTreeSet};

use document::{DocumentNode, Field, nearest};

use super::draft::ServiceDraft;
use super::files_beside;
use super::local_mounts::{self, LocalMount};
use super::service_fields::binary_amount;
use crate::compose_document::text_of;
use crate::project::EXTENSION;
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

fn short(text: &str, item: &DocumentNode, draft: &mut ServiceDraft<'_, '_>) -> Option<DocumentNode> {
    let parts: Vec<&str> = text.split(':').collect();
    let options: Vec<&str> = parts.get(2).map_or(Vec::new(), |options| options.split(',').collect());
    match parts[..] {
        [path, target, ..] if files_beside::is_local(path) => {
            let is_read_only = options.contains(&"ro");
            local_mounts::add(&LocalMount { path, target, is_read_only, item }, draft)
        }
        [source, target] | [source, target, _] => {
            check_declared(source, item, draft);
            note_bind(source, item, draft);
            let others = options.iter().filter(|option| !matches!(**option, "" | "ro" | "rw"));
            for other in others {
                not_honoured(item, &format!("the option {other} has no effect"), draft);
            }
            let end = if options.contains(&"ro") { ":ro" } else { "" };
            Some(item.with_text(format!("{source}:{target}{end}")))
        }
        // Malformed volumes are reported where volumes are parsed.
        _ => Some(item.clone()),
    }
}

/// By default no node runs a service that mounts a node's path.
fn note_bind(source: &str, item: &DocumentNode, draft: &mut ServiceDraft<'_, '_>) {
    if source.starts_with('/') {
        let detail = format!(
            "{source} is a path of the node: only nodes run the service whose KUBELEET_BIND_PREFIXES has that path"
        );
        draft.note(NoteKind::Different, item.place(), detail);
    }
}

/// A typo would create a new, empty volume.
fn check_declared(source: &str, item: &DocumentNode, draft: &mut ServiceDraft<'_, '_>) {
    let declared = draft.declared.root.get("volumes");
    if source.is_empty()
        || source.starts_with('/')
        || declared.is_some_and(|declared| declared.has_field(source))
    {
        return;
    }
    let names: Vec<&str> =
        declared.into_iter().flat_map(|declared| declared.fields().map(|f| f.name)).collect();
    let advice = match nearest(source, &names) {
        Some(near) => format!("did you mean {near:?}?"),
        None if source.contains(['.', '/']) => format!("write ./{source} for what is beside the file"),
        None => format!("add `{source}:` to `volumes` at the top of the file"),
    };
    draft.mistake(item.place(), &format!("volume {source:?} is not declared; {advice}"));
}

fn long(item: &DocumentNode, draft: &mut ServiceDraft<'_, '_>) -> Option<DocumentNode> {
    if !item.is_map() {
        return Some(item.clone());
    }
    let text = |name: &str| item.get(name).and_then(DocumentNode::scalar).unwrap_or_default();
    match &*text("type") {
        "bind" if files_beside::is_local(&text("source")) => {
            let (path, target) = (text("source"), text("target"));
            let is_read_only = text("read_only") == "true";
            let mount = LocalMount { path: &path, target: &target, is_read_only, item };
            return local_mounts::add(&mount, draft);
        }
        other @ ("npipe" | "cluster" | "image") => {
            not_honoured(item, &format!("the type {other} is not supported"), draft);
            return None;
        }
        "volume" => check_declared(&text("source"), item, draft),
        "bind" => note_bind(&text("source"), item, draft),
        _ => {}
    }
    let mut volume = DocumentNode::empty_map(item.place());
    for part in item.fields().filter(|part| !part.name.starts_with(EXTENSION)) {
        match part.name {
            "bind" | "volume" => {
                let has_effect = part.value.fields().any(|option| {
                    // The node's directory must already exist.
                    option.name != "create_host_path"
                        && !option.name.starts_with(EXTENSION)
                        && !option.value.is_blank()
                });
                if has_effect || !part.value.is_map() {
                    not_honoured(part.value, &format!("{} has no effect", part.name), draft);
                }
            }
            "image" | "consistency" => {
                not_honoured(part.value, &format!("{} has no effect", part.name), draft)
            }
            "read_only" => volume.set(part.name, part.place, part.value.unquoted()),
            "tmpfs" if part.value.is_map() => volume.set(part.name, part.place, in_memory(part.value, draft)),
            _ => volume.set(part.name, part.place, part.value.clone()),
        }
    }
    Some(volume)
}

/// A size of 0 is no limit.
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

fn not_honoured(node: &DocumentNode, why: &str, draft: &mut ServiceDraft<'_, '_>) {
    if !node.is_blank() {
        draft.note(NoteKind::NotHonoured, node.place(), format!("volumes is not honoured in part: {why}"));
    }
}

pub(crate) fn common_volumes(services: &[(&str, &mut DocumentNode)]) -> BTreeSet<String> {
    let mut users: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (service, document) in services {
        for (source, _) in named(document) {
            users.entry(source).or_default().insert(service);
        }
    }
    users.into_iter().filter(|(_, users)| users.len() > 1).map(|(source, _)| source).collect()
}

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
            long.set("source", place, volume.with_text(source));
            long.set("target", place, volume.with_text(parts.next().unwrap_or_default()));
            if parts.next() == Some("ro") {
                long.set("read_only", place, volume.with_text("true").unquoted());
            }
            long
        }
    };
    if !long.has_field("kind") {
        long.set("kind", place, volume.with_text("shared"));
    }
    long
}

/// `common` are the volumes of several services; `shared` is the shared subset.
pub(crate) fn note_uses(
    root: &DocumentNode,
    services: &[(&str, &mut DocumentNode)],
    common: &BTreeSet<String>,
    shared: &BTreeSet<String>,
    report: &mut Report,
) {
    for (service, document) in services {
        let replicas = text_of(document, "replicas").and_then(|text| text.parse::<u64>().ok());
        let has_replicas = replicas.is_some_and(|count| count > 1);
        for (name, volume) in named(document) {
            let is_shared = shared.contains(&name);
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
            // Compose also calls its default driver `local`.
            let is_default = |option: &Field<'_>| {
                option.name == "driver" && option.value.scalar().is_some_and(|driver| driver == "local")
            };
            for option in options.filter(|option| {
                !option.name.starts_with(EXTENSION) && !option.value.is_blank() && !is_default(option)
            }) {
                let detail = format!("volumes.{name}.{} is not honoured: it is {what}", option.name);
                report.note(NoteKind::NotHonoured, option.place, service, detail);
            }
        }
    }
}

fn named(document: &DocumentNode) -> impl Iterator<Item = (String, &DocumentNode)> {
    let volumes = document.get("volumes").and_then(DocumentNode::items).unwrap_or_default().iter();
    let named = volumes.filter_map(|volume| Some((source_of(volume)?, volume)));
    named.filter(|(source, _)| !source.starts_with('/'))
}

fn source_of(volume: &DocumentNode) -> Option<String> {
    match volume.scalar() {
        Some(text) => text.split_once(':').map(|(source, _)| source.to_owned()),
        None => text_of(volume, "source"),
    }
}
