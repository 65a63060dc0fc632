//! Secrets and configs. Contents are never shown.

use std::collections::{BTreeMap, BTreeSet};

use document::{DocumentNode, Field, TextPosition, nearest};
use model::ids::{AppName, ValueName};
use model::value::{MAX_VALUE_BYTES, ValueBytes, ValueKind};

use crate::compose_document::{Variables, names_of, text_of};
use crate::names::text_at;
use crate::project::{Allowance, EXTENSION};
use crate::report::{NoteKind, Report};
use crate::source::FileSources;
use crate::translate::files_beside::{self, FileBeside};

const ORIGINS: [&str; 3] = ["file", "environment", "content"];

#[derive(Debug, Clone, PartialEq)]
pub struct AppValue {
    pub kind: ValueKind,
    /// In the cluster.
    pub name: ValueName,
    pub content: ValueBytes,
}

pub(crate) struct Declared<'a> {
    pub(crate) root: &'a DocumentNode,
    pub(crate) app: &'a AppName,
    pub(crate) variables: &'a Variables,
    pub(crate) sources: &'a dyn FileSources,
    pub(crate) allowed: &'a BTreeSet<Allowance>,
    not_honoured: fn(&str) -> Option<&'static str>,
    /// `None` for a value that the app does not create.
    used: BTreeMap<(ValueKind, String), Option<DocumentNode>>,
    pub(crate) made: Vec<AppValue>,
    pub(crate) sent_files: BTreeSet<(String, String)>,
    /// They became volumes of the service.
    directories: BTreeMap<String, String>,
}

impl<'a> Declared<'a> {
    pub(crate) fn new(
        root: &'a DocumentNode,
        app: &'a AppName,
        variables: &'a Variables,
        sources: &'a dyn FileSources,
        allowed: &'a BTreeSet<Allowance>,
        not_honoured: fn(&str) -> Option<&'static str>,
    ) -> Self {
        Self {
            root,
            app,
            variables,
            sources,
            allowed,
            not_honoured,
            used: BTreeMap::new(),
            made: Vec::new(),
            sent_files: BTreeSet::new(),
            directories: BTreeMap::new(),
        }
    }

    pub(crate) fn all_values(&self) -> BTreeSet<(ValueKind, ValueName)> {
        let declared = [ValueKind::Secret, ValueKind::Config].into_iter().flat_map(|kind| {
            let group = self.root.get(group(kind)).into_iter().flat_map(DocumentNode::fields);
            group.map(move |field| (kind, field))
        });
        let all = declared.filter(|(_, field)| !is_external(field.value));
        let named = all.map(|(kind, field)| (kind, self.name_of(field)));
        let services = names_of(self.root, "services");
        let beside = services.iter().flat_map(|service| self.mounted_files(service));
        let beside = beside.map(|file| (files_beside::kind_of(&file.path, self.sources), file.name));
        named.chain(beside).filter_map(|(kind, name)| Some((kind, ValueName::new(name).ok()?))).collect()
    }

    fn mounted_files(&self, service: &str) -> Vec<FileBeside> {
        let declared = self.root.get("services").and_then(|services| services.get(service));
        let volumes = declared.and_then(|service| service.get("volumes"));
        volumes.map_or(Vec::new(), |volumes| files_beside::mounts(self.app.as_str(), service, volumes))
    }

    pub(crate) fn send(&mut self, path: &str, becomes: String) {
        self.sent_files.insert((path.to_owned(), becomes));
    }

    pub(crate) fn directory(&mut self, path: &str, service: &str) -> Option<String> {
        let owner = self.directories.entry(path.to_owned()).or_insert_with(|| service.to_owned());
        (owner != service).then(|| owner.clone())
    }

    pub(crate) fn file_beside(
        &mut self,
        service: &str,
        path: &str,
        target: &str,
    ) -> Result<(ValueKind, ValueName), String> {
        let mounted = self.mounted_files(service);
        let file = mounted.into_iter().find(|file| file.path == path && file.target == target);
        let name = file.map(|file| file.name).unwrap_or_default();
        let name = ValueName::new(name).map_err(|error| error.to_string())?;
        let kind = files_beside::kind_of(path, self.sources);
        if self.made.iter().any(|value| value.kind == kind && value.name == name) {
            return Err(format!("{service} has another file of the same name"));
        }
        let bytes = self.sources.read_bytes(path).map_err(|error| error.to_string())?;
        self.made.push(AppValue { kind, name: name.clone(), content: content_of(bytes)? });
        self.send(path, format!("{kind} {name}"));
        Ok((kind, name))
    }

    /// `None` after a mistake.
    fn used(
        &mut self,
        kind: ValueKind,
        source: &str,
        place: Option<TextPosition>,
        report: &mut Report,
    ) -> Option<DocumentNode> {
        let key = (kind, source.to_owned());
        if let Some(known) = self.used.get(&key) {
            return known.clone();
        }
        let name = self.declaration(kind, source, place, report);
        let name = name.map(|name| text_at(name.as_str(), place));
        self.used.insert(key, name.clone());
        name
    }

    fn declaration(
        &mut self,
        kind: ValueKind,
        source: &str,
        place: Option<TextPosition>,
        report: &mut Report,
    ) -> Option<ValueName> {
        let root = self.root;
        let Some(field) = root.get(group(kind)).and_then(|declared| declared.field(source)) else {
            report.mistake(place, undeclared(kind, source, root));
            return None;
        };
        self.note_parts(kind, field, report);
        let name = match ValueName::new(self.name_of(field)) {
            Ok(name) => name,
            Err(error) => {
                report.mistake(field.place, format!("{kind} {source}: {error}"));
                return None;
            }
        };
        let origins: Vec<Field<'_>> = ORIGINS
            .iter()
            .filter_map(|origin| field.value.field(origin))
            .filter(|field| !field.value.is_null())
            .collect();
        match (is_external(field.value), origins.as_slice()) {
            (true, []) => {}
            (false, [origin]) => match self.content(*origin) {
                Ok(content) => {
                    if let Some(path) = origin.value.scalar().filter(|_| origin.name == "file") {
                        self.send(&path, format!("{kind} {name}"));
                    }
                    self.made.push(AppValue { kind, name: name.clone(), content });
                }
                Err(problem) => report.mistake(origin.place, format!("{kind} {source}: {problem}")),
            },
            (true, [origin, ..]) => {
                let detail =
                    format!("{kind} {source}: an external one has no {}: it is in the cluster", origin.name);
                report.mistake(origin.place, detail);
            }
            (false, _) => {
                let detail =
                    format!("{kind} {source}: write one of file, environment, content or external: true");
                report.mistake(field.place, detail);
            }
        }
        Some(name)
    }

    fn note_parts(&self, kind: ValueKind, field: Field<'_>, report: &mut Report) {
        let group = group(kind);
        for part in field.value.fields().filter(|part| !part.value.is_blank()) {
            if let Some(advice) = (self.not_honoured)(&format!("{group}.*.{}", part.name)) {
                let detail = format!("{group}.{}.{} is not honoured: {advice}", field.name, part.name);
                report.note(NoteKind::NotHonoured, part.place, "", detail);
            }
        }
    }

    /// By default the app's name and the one in the file.
    fn name_of(&self, field: Field<'_>) -> String {
        let named = text_of(field.value, "name");
        match named.or_else(|| text_of(field.value.get("external")?, "name")) {
            Some(name) => name,
            None if is_external(field.value) => field.name.to_owned(),
            None => format!("{}-{}", self.app, field.name),
        }
    }

    /// Errors contain nothing of the content.
    fn content(&self, origin: Field<'_>) -> Result<ValueBytes, String> {
        let Some(text) = origin.value.scalar() else {
            return Err(format!("{} must be a text, not {}", origin.name, origin.value.kind()));
        };
        let bytes = match origin.name {
            // The path is already complete.
            "file" => self.sources.read_bytes(&text).map_err(|error| format!("file {text}: {error}"))?,
            "environment" => match self.variables.get(&*text) {
                Some(value) => value.clone().into_bytes(),
                None => {
                    return Err(format!("variable {text} is not set: set it in the environment or in .env"));
                }
            },
            _ => text.into_owned().into_bytes(),
        };
        content_of(bytes)
    }
}

fn content_of(bytes: Vec<u8>) -> Result<ValueBytes, String> {
    match bytes.len() {
        0 => Err("the content is empty".to_owned()),
        length if length > MAX_VALUE_BYTES => Err(format!(
            "more than {} KiB; put large files into the image or a volume",
            MAX_VALUE_BYTES / 1024
        )),
        _ => Ok(ValueBytes::new(bytes)),
    }
}

pub(crate) fn references(
    kind: ValueKind,
    field: Field<'_>,
    service: &str,
    declared: &mut Declared<'_>,
    report: &mut Report,
) -> DocumentNode {
    let Some(items) = field.value.items() else { return field.value.clone() };
    let references = items.iter().filter_map(|item| {
        let source = match item.is_map() {
            true => item.get("source")?.scalar(),
            false => item.scalar(),
        };
        // Other forms are reported where services are checked.
        let Some(source) = source else { return Some(item.clone()) };
        let name = declared.used(kind, &source, item.place(), report)?;
        let mut reference = DocumentNode::empty_map(item.place());
        reference.set("source", item.place(), name);
        reference.set("target", item.place(), text_at(&source, item.place()));
        let parts = item.is_map().then(|| item.fields()).into_iter().flatten();
        for part in parts.filter(|part| part.name != "source" && !part.name.starts_with(EXTENSION)) {
            if matches!(part.name, "uid" | "gid") {
                let detail = format!("{}.{} needs workers that run as root", field.name, part.name);
                report.note(NoteKind::Different, part.place, service, detail);
            }
            let value =
                part.value.scalar().map_or_else(|| part.value.clone(), |text| part.value.with_text(text));
            reference.set(part.name, part.place, value);
        }
        Some(reference)
    });
    DocumentNode::list(references.collect(), field.value.place())
}

fn undeclared(kind: ValueKind, source: &str, root: &DocumentNode) -> String {
    let group = group(kind);
    let names: Vec<&str> =
        root.get(group).into_iter().flat_map(|declared| declared.fields().map(|f| f.name)).collect();
    match nearest(source, &names) {
        Some(near) => format!("{kind} {source:?} is not declared; did you mean {near:?}?"),
        None => format!(
            "{kind} {source:?} is not declared: add it to `{group}` at the top of the file; `external: true` takes one \
             of the cluster"
        ),
    }
}

pub(crate) fn is_external(declaration: &DocumentNode) -> bool {
    declaration.get("external").is_some_and(|external| match external.scalar() {
        Some(text) => text == "true",
        None => external.is_map(),
    })
}

pub(crate) fn group(kind: ValueKind) -> &'static str {
    match kind {
        ValueKind::Secret => "secrets",
        ValueKind::Config => "configs",
    }
}
