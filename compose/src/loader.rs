//! Reads the files and replaces their variables.

use std::collections::BTreeMap;

use document::{DocumentNode, TextPosition};

use crate::compose_document::{ComposeDocument, Surroundings, Variables, names_of};
use crate::env_file::{self, EnvFileFormat};
use crate::interpolate::interpolate;
use crate::report::{NoteKind, Report, note_unset, unset};
use crate::source::{FileSources, SourceError, join};
use crate::translate::files_beside;

const ENV_FILE: &str = ".env";
/// With each include and extend: a few lines can ask for billions.
const MAX_BYTES: usize = 128 << 20;

pub(crate) struct Loader<'a> {
    sources: &'a dyn FileSources,
    pub(crate) report: &'a mut Report,
    /// With their number of bytes.
    parsed: BTreeMap<String, (Vec<DocumentNode>, usize)>,
    pub(crate) includes: usize,
    bytes: usize,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(sources: &'a dyn FileSources, report: &'a mut Report) -> Self {
        Self { sources, report, parsed: BTreeMap::new(), includes: 0, bytes: 0 }
    }

    pub(crate) fn parse(&mut self, files: &[String]) -> Vec<ComposeDocument> {
        files.iter().flat_map(|file| self.parse_one(file, None)).collect()
    }

    /// `place` is the reference to the file in another one.
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

    /// A later file wins, and the environment before all. Only a file named explicitly must exist.
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
        for name in names_of(document, "services") {
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
