//! Puts the files together: reads them, replaces variables, follows `extends` and `include`, and merges them.

use std::collections::BTreeMap;

use common::document::{self, DocumentNode, TextPosition};

use crate::env_file::{self, EnvFileFormat};
use crate::extends;
use crate::interpolate::interpolate;
use crate::merge::{is_same, merge};
use crate::report::{NoteKind, Report};
use crate::source::{FileSources, SourceError, folder_of, join};
use crate::translate::files_beside;

/// The file of variables beside the first file.
const ENV_FILE: &str = ".env";
/// The groups that an included application adds to.
const GROUPS: [&str; 6] = ["services", "networks", "volumes", "secrets", "configs", "models"];

/// The variables that the texts may use.
pub(crate) type Variables = BTreeMap<String, String>;

/// The most files that are included, and the most bytes of all files, each as often as it is included or
/// extended: a few lines can ask for billions.
const MAX_INCLUDES: usize = 500;
const MAX_BYTES: usize = 128 << 20;

/// Reads files and collects what there is to say about them.
pub(crate) struct Loader<'a> {
    sources: &'a dyn FileSources,
    pub(crate) report: &'a mut Report,
    /// The documents of the files that were read, with the number of bytes.
    parsed: BTreeMap<String, (Vec<DocumentNode>, usize)>,
    includes: usize,
    bytes: usize,
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

impl<'a> Loader<'a> {
    pub(crate) fn new(sources: &'a dyn FileSources, report: &'a mut Report) -> Self {
        Self { sources, report, parsed: BTreeMap::new(), includes: 0, bytes: 0 }
    }

    /// Returns the documents of the files, in their order.
    pub(crate) fn parse(&mut self, files: &[String]) -> Vec<ComposeDocument> {
        files.iter().flat_map(|file| self.parse_one(file, None)).collect()
    }

    /// Returns the documents of one file. `place` is where it is named, if that is in another file.
    pub(crate) fn parse_one(&mut self, file: &str, place: Option<TextPosition>) -> Vec<ComposeDocument> {
        if !self.parsed.contains_key(file) {
            let read = self.read_documents(file, place);
            self.parsed.insert(file.to_owned(), read);
        }
        let Some((documents, bytes)) = self.parsed.get(file) else { return Vec::new() };
        self.bytes += bytes;
        if self.bytes > MAX_BYTES {
            let detail = format!("{file}: the files have more than {} MiB", MAX_BYTES >> 20);
            self.report.mistake(place, detail);
            return Vec::new();
        }
        let document = |root: &DocumentNode| ComposeDocument { file: file.to_owned(), root: root.clone() };
        documents.iter().map(document).collect()
    }

    fn read_documents(&mut self, file: &str, place: Option<TextPosition>) -> (Vec<DocumentNode>, usize) {
        let text = match self.sources.read(file) {
            Ok(text) => text,
            Err(error) => {
                match place {
                    Some(place) => self.report.mistake(Some(place), format!("{file}: {error}")),
                    None => self.report.mistake_of_file(file, error.to_string()),
                }
                return (Vec::new(), 0);
            }
        };
        let number = self.report.add_file(file);
        let (mut documents, mistakes) = document::yaml(&text);
        for mistake in mistakes {
            let start = TextPosition { file: number, line: 1, column: 1 };
            let place = mistake.place.map_or(start, |place| TextPosition { file: number, ..place });
            self.report.mistake(Some(place), mistake.detail);
        }
        documents.iter_mut().for_each(|root| root.set_file(number));
        (documents, text.len())
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
                    note_unset(path, found.unset, self.report);
                    let set = found.variables.into_iter().filter_map(|(name, value)| Some((name, value?)));
                    variables.extend(set);
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
            including.push(file);
            // What a file includes belongs to it: a later file overrides that, too.
            let document = self.add_included(document, around, &including);
            root = merge(root, &document, "");
        }
        root
    }

    /// Replaces the variables of a document, and completes the paths in it.
    pub(crate) fn prepare(&mut self, document: &mut DocumentNode, around: Surroundings<'_>) {
        let report = &mut *self.report;
        let mut kept = 0;
        document.replace_scalars(&mut |text, place| {
            if !text.contains('$') {
                return None;
            }
            match interpolate(text, &|name| around.variables.get(name).cloned()) {
                Ok(done) => {
                    done.unset.iter().for_each(|name| report.note(NoteKind::Unset, place, "", unset(name)));
                    kept += done.text.len();
                    if kept > MAX_BYTES {
                        let detail = format!("variables make the files longer than {} MiB", MAX_BYTES >> 20);
                        report.mistake(None, detail);
                        return Some(String::new());
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
            self.includes += 1;
            if self.includes > MAX_INCLUDES {
                let detail = format!("more than {MAX_INCLUDES} files are included, one through another");
                self.report.mistake(entry.place(), detail);
                break;
            }
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

    /// Adds what an included application defines. The same may be defined twice, as by two files that include
    /// a third one.
    fn add(&mut self, root: &mut DocumentNode, included: &DocumentNode, file: &str) {
        for group in GROUPS {
            let Some(theirs) = included.get(group) else { continue };
            if !root.has_value(group) {
                root.set(group, theirs.place(), DocumentNode::empty_map(theirs.place()));
            }
            let Some(ours) = root.get_mut(group) else { continue };
            for field in theirs.fields() {
                match ours.field(field.name) {
                    None => ours.set(field.name, field.place, field.value.clone()),
                    Some(own) if is_same(&whole(own.value, group), field.value) => {}
                    Some(own) => {
                        let name = match group {
                            "services" => field.name.to_owned(),
                            group => format!("{group}.{}", field.name),
                        };
                        let detail = format!("{name} is defined here and in {file}, which is included");
                        self.report.mistake(own.place, detail);
                    }
                }
            }
        }
    }
}

/// Returns what a file defines as a file says it that overrides no other one.
fn whole(own: &DocumentNode, group: &str) -> DocumentNode {
    merge(DocumentNode::null(own.place()), own, &format!("{group}.*"))
}

/// Notes the variables of a file that are not set.
pub(crate) fn note_unset(path: &str, names: Vec<(u64, String)>, report: &mut Report) {
    for (line, name) in names {
        let file = report.add_file(path);
        report.note(NoteKind::Unset, Some(TextPosition { file, line, column: 1 }), "", unset(&name));
    }
}

fn unset(name: &str) -> String {
    format!("variable {name} is not set; nothing stands in its place")
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
