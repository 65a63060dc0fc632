//! Environment variables: `env_file`, then `environment`.

use document::{DocumentNode, Field, TextPosition};

use super::draft::ServiceDraft;
use crate::compose_document::text_of;
use crate::env_file::{self as file, EnvFileFormat};
use crate::report::{NoteKind, note_unset};
use crate::scalars;
use crate::source::SourceError;

const ENVIRONMENT: &str = "environment";

/// Paths are already complete.
pub(crate) fn env_file(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    for entry in field.value.items().unwrap_or_default() {
        let path = match entry.is_map() {
            true => text_of(entry, "path"),
            false => entry.scalar().map(|path| path.into_owned()),
        };
        let Some(path) = path else {
            draft.mistake(entry.place(), "env_file: write the path of a file");
            continue;
        };
        let format = match text_of(entry, "format").as_deref() {
            None | Some("") => EnvFileFormat::Compose,
            Some("raw") => EnvFileFormat::Raw,
            Some(other) => {
                let detail = format!("env_file: the format is `raw`, or left out, not {other:?}");
                draft.mistake(entry.place(), &detail);
                continue;
            }
        };
        let is_required = text_of(entry, "required").as_deref() != Some("false");
        add_file(&path, format, is_required, entry.place(), draft);
    }
}

fn add_file(
    path: &str,
    format: EnvFileFormat,
    is_required: bool,
    place: Option<TextPosition>,
    draft: &mut ServiceDraft<'_, '_>,
) {
    let content = match draft.sources.read(path) {
        Ok(content) => content,
        Err(SourceError::NotFound) if !is_required => return,
        Err(error) => return draft.mistake(place, &format!("env_file {path}: {error}")),
    };
    // A file may use variables of earlier files.
    let above = draft.document.get(ENVIRONMENT).cloned();
    let of_files = |name: &str| text_of(above.as_ref()?, name);
    let lookup = |name: &str| (draft.lookup)(name).or_else(|| of_files(name));
    match file::parse(&content, format, &lookup) {
        Err((line, problem)) => {
            let number = draft.report.add_file(path);
            let place = TextPosition { file: number, line, column: 1 };
            draft.report.mistake(Some(place), problem);
        }
        Ok(found) => {
            note_unset(path, found.unset, draft.report);
            let becomes = format!("environment of {}", draft.service);
            draft.declared.send(path, becomes);
            for (name, value) in found.variables {
                let at = DocumentNode::null(place);
                let value = value.or_else(|| (draft.lookup)(&name));
                if let Some(value) = value {
                    set(&name, place, at.with_text(value), place, draft);
                }
            }
        }
    }
}

/// A variable without a value takes it from the environment, if set.
pub(crate) fn environment(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    if !field.value.is_map() {
        return draft.set(ENVIRONMENT, field, field.value.clone());
    }
    for variable in field.value.fields() {
        let value = match (variable.value.is_null(), variable.value.scalar()) {
            (true, _) => (draft.lookup)(variable.name).map(|value| variable.value.with_text(value)),
            (false, Some(_)) => Some(as_text(variable, field.name, draft)),
            (false, None) => Some(variable.value.clone()),
        };
        match value {
            Some(value) => set(variable.name, variable.place, value, field.place, draft),
            // Also removes a value that a file of variables set.
            None => {
                let variables = draft.document.get_mut(ENVIRONMENT);
                variables.into_iter().for_each(|variables| variables.remove_field(variable.name));
            }
        }
    }
}

pub(super) fn as_text(entry: Field<'_>, field: &str, draft: &mut ServiceDraft<'_, '_>) -> DocumentNode {
    let Some(text) = scalars::as_text(entry.value) else { return entry.value.clone() };
    let written = entry.value.scalar().unwrap_or_default();
    if !text.eq_ignore_ascii_case(&written) {
        let detail = format!(
            "{field}.{}: {written} is a number, and becomes {text}, as with Compose; a text stands in quotation marks",
            entry.name
        );
        draft.note(NoteKind::Hint, entry.value.place(), detail);
    }
    entry.value.with_text(text)
}

fn set(
    name: &str,
    key_place: Option<TextPosition>,
    value: DocumentNode,
    place: Option<TextPosition>,
    draft: &mut ServiceDraft<'_, '_>,
) {
    if !draft.document.has_field(ENVIRONMENT) {
        draft.document.set(ENVIRONMENT, place, DocumentNode::empty_map(place));
    }
    if let Some(variables) = draft.document.get_mut(ENVIRONMENT) {
        variables.set(name, key_place, value);
    }
}
