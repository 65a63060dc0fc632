//! Puts the files together: reads them, replaces variables, follows `extends` and `include`, and merges them.

use std::collections::BTreeMap;

use common::document::{self, DocumentNode, TextPosition};

use crate::env_file::{self, EnvFileFormat};
use crate::extends;
use crate::interpolate::interpolate;
use crate::merge::{common_names, first, merge};
use crate::report::{NoteKind, Report};
use crate::source::{FileSources, SourceError, folder_of, join};
use crate::translate::files_beside;

/// The file of variables beside the first file.
const ENV_FILE: &str = ".env";
/// The groups that an included application adds to.
const GROUPS: [&str; 6] = ["services", "networks", "volumes", "secrets", "configs", "models"];

/// The variables that the texts may use.
pub(crate) type Variables = BTreeMap<String, String>;

/// Reads files and collects what there is to say about them.
pub(crate) struct Loader<'a> {
    pub(crate) sources: &'a dyn FileSources,
    pub(crate) report: &'a mut Report,
}

/// A document of a file, before its variables are replaced.
pub(crate) struct ComposeDocument {
    pub(crate) file: String,
    pub(crate) root: DocumentNode,
}

/// Where the paths of a document begin, and what its variables are.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) folder: &'a str,
    pub(crate) variables: &'a Variables,
}

impl Loader<'_> {
    /// Returns the documents of the files, in their order.
    pub(crate) fn parse(&mut self, files: &[String]) -> Vec<ComposeDocument> {
        files.iter().flat_map(|file| self.parse_one(file, None)).collect()
    }

    /// Returns the documents of one file. `place` is where it is named, if that is in another file.
    pub(crate) fn parse_one(&mut self, file: &str, place: Option<TextPosition>) -> Vec<ComposeDocument> {
        let text = match self.sources.read(file) {
            Ok(text) => text,
            Err(error) => {
                match place {
                    Some(place) => self.report.mistake(Some(place), format!("{file}: {error}")),
                    None => self.report.mistake_of_file(file, error.to_string()),
                }
                return Vec::new();
            }
        };
        let number = self.report.add_file(file);
        let (documents, mistakes) = document::yaml(&text);
        for mistake in mistakes {
            let start = TextPosition { file: number, line: 1, column: 1 };
            let place = mistake.place.map_or(start, |place| TextPosition { file: number, ..place });
            self.report.mistake(Some(place), mistake.detail);
        }
        let with_places = documents.into_iter().map(|mut root| {
            root.set_file(number);
            ComposeDocument { file: file.to_owned(), root }
        });
        with_places.collect()
    }

    /// Returns the variables of files: a later one wins, and the environment before all. A file that is not
    /// named need not be there.
    pub(crate) fn variables(&mut self, named: &[String], folder: &str, environment: &Variables) -> Variables {
        let mut variables = Variables::new();
        let default = [join(folder, ENV_FILE)];
        for path in if named.is_empty() { &default[..] } else { named } {
            let text = match self.sources.read(path) {
                Ok(text) => text,
                Err(SourceError::NotFound) if named.is_empty() => continue,
                Err(error) => {
                    self.report.mistake_of_file(path, error.to_string());
                    continue;
                }
            };
            let lookup = |name: &str| environment.get(name).or_else(|| variables.get(name)).cloned();
            match env_file::parse(&text, EnvFileFormat::Compose, &lookup) {
                Ok(found) => {
                    variables.extend(found.into_iter().filter_map(|(name, value)| Some((name, value?))))
                }
                Err((line, problem)) => {
                    let file = self.report.add_file(path);
                    self.report.mistake(Some(TextPosition { file, line, column: 1 }), problem);
                }
            }
        }
        variables.extend(environment.clone());
        variables
    }

    /// Merges the documents of one application, and adds the ones that they include. `including` are the
    /// files on the way here.
    pub(crate) fn assemble(
        &mut self,
        documents: Vec<ComposeDocument>,
        around: Surroundings<'_>,
        including: &[String],
    ) -> DocumentNode {
        let mut including = including.to_vec();
        let mut root = DocumentNode::empty_map(None);
        for ComposeDocument { file, root: mut document } in documents {
            if !document.is_map() {
                let detail = format!("a Compose file is a map of fields, not {}", document.kind());
                self.report.mistake(document.place(), detail);
                continue;
            }
            self.prepare(&mut document, around);
            extends::resolve(self, &mut document, &file, around);
            root = merge(root, &document, "");
            including.push(file);
        }
        // Without the tags of the only file.
        let root = first(&root, "");
        self.add_included(root, around, &including)
    }

    /// Replaces the variables of a document, and completes the paths in it.
    pub(crate) fn prepare(&mut self, document: &mut DocumentNode, around: Surroundings<'_>) {
        let report = &mut *self.report;
        document.replace_scalars(&mut |text, place| {
            if !text.contains('$') {
                return None;
            }
            match interpolate(text, &|name| around.variables.get(name).cloned()) {
                Ok(done) => {
                    for name in done.unset {
                        let detail = format!("variable {name} is not set; nothing stands in its place");
                        report.note(NoteKind::Unset, place, "", detail);
                    }
                    Some(done.text)
                }
                Err(problem) => {
                    report.mistake(place, problem);
                    None
                }
            }
        });
        for group in ["secrets", "configs"] {
            for name in names_of(document, group) {
                let declared = document.get_mut(group).and_then(|group| group.get_mut(&name));
                if let Some(file) = declared.and_then(|declared| declared.get_mut("file")) {
                    complete_paths(file, around.folder);
                }
            }
        }
        let names: Vec<String> = names_of(document, "services");
        for name in names {
            let service = document.get_mut("services").and_then(|services| services.get_mut(&name));
            let Some(service) = service else { continue };
            if let Some(files) = service.get_mut("env_file") {
                complete_paths(files, around.folder);
            }
            if let Some(volumes) = service.get_mut("volumes") {
                files_beside::complete(volumes, around.folder);
            }
        }
    }

    fn add_included(
        &mut self,
        mut root: DocumentNode,
        around: Surroundings<'_>,
        including: &[String],
    ) -> DocumentNode {
        let entries: Vec<DocumentNode> = match root.get("include") {
            None => return root,
            Some(list) => list.items().map_or_else(|| vec![list.clone()], <[DocumentNode]>::to_vec),
        };
        for entry in entries {
            let paths = texts(entry.get("path").unwrap_or(&entry));
            let files: Vec<String> = paths.iter().map(|path| join(around.folder, path)).collect();
            let Some(first) = files.first() else {
                self.report.mistake(entry.place(), "include: write the path of a Compose file");
                continue;
            };
            if let Some(again) = files.iter().find(|file| including.contains(file)) {
                let path = including.join(" -> ");
                self.report.mistake(entry.place(), format!("include goes in a circle: {path} -> {again}"));
                continue;
            }
            let folder = match entry.get("project_directory").and_then(DocumentNode::scalar) {
                Some(folder) => join(around.folder, &folder),
                None => folder_of(first).to_owned(),
            };
            let named: Vec<String> = entry.get("env_file").map(texts).unwrap_or_default();
            let named: Vec<String> = named.iter().map(|path| join(around.folder, path)).collect();
            let variables = self.variables(&named, &folder, around.variables);
            let documents: Vec<_> =
                files.iter().flat_map(|file| self.parse_one(file, entry.place())).collect();
            let inner = Surroundings { folder: &folder, variables: &variables };
            let included = self.assemble(documents, inner, including);
            self.add(&mut root, &included, first);
        }
        root
    }

    /// Adds what an included application defines.
    fn add(&mut self, root: &mut DocumentNode, included: &DocumentNode, file: &str) {
        for group in GROUPS {
            let Some(theirs) = included.get(group) else { continue };
            if !root.has_value(group) {
                root.set(group, theirs.place(), DocumentNode::empty_map(theirs.place()));
            }
            let Some(ours) = root.get_mut(group) else { continue };
            let both = common_names(ours, theirs);
            for field in theirs.fields().filter(|field| !both.contains(field.name)) {
                ours.set(field.name, field.place, field.value.clone());
            }
            for name in both.iter().filter(|_| group == "services") {
                let place = ours.field(name).and_then(|field| field.place);
                self.report
                    .mistake(place, format!("{name} is defined here and in {file}, which is included"));
            }
        }
    }
}

/// Returns the names of the fields in a field.
pub(crate) fn names_of(node: &DocumentNode, field: &str) -> Vec<String> {
    node.get(field).into_iter().flat_map(|inner| inner.fields().map(|field| field.name.to_owned())).collect()
}

/// Returns one text, or those of a list.
fn texts(node: &DocumentNode) -> Vec<String> {
    let text = |node: &DocumentNode| node.scalar().map(|text| text.into_owned());
    match node.items() {
        Some(items) => items.iter().filter_map(text).collect(),
        None => text(node).into_iter().collect(),
    }
}

fn complete_paths(files: &mut DocumentNode, folder: &str) {
    let complete = |node: &mut DocumentNode| {
        node.replace_scalars(&mut |path, _| Some(join(folder, path)));
    };
    if let Some(items) = files.items_mut() {
        items.iter_mut().for_each(|item| match item.is_map() {
            true => item.get_mut("path").into_iter().for_each(complete),
            false => complete(item),
        });
    } else if !files.is_map() {
        complete(files);
    }
}
