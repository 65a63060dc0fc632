//! Draft of a service during translation.

use std::collections::BTreeSet;

use document::{DocumentNode, Field, TextPosition};
use model::value::ValueKind;

use crate::interpolate::VariableLookup;
use crate::names::text_at;
use crate::report::{NoteKind, Report};
use crate::source::FileSources;
use crate::values::{Declared, group};

pub(crate) type Translate = fn(Field<'_>, &mut ServiceDraft<'_, '_>);

pub(crate) struct ServiceDraft<'a, 'f> {
    pub(crate) service: &'a str,
    pub(crate) document: DocumentNode,
    /// Fields with a different name in the file, with that name.
    pub(crate) renamed: Vec<(String, String)>,
    pub(crate) lookup: VariableLookup<'a>,
    pub(crate) sources: &'a dyn FileSources,
    pub(crate) declared: &'a mut Declared<'f>,
    pub(crate) active: &'a BTreeSet<String>,
    pub(crate) report: &'a mut Report,
}

impl ServiceDraft<'_, '_> {
    pub(super) fn set(&mut self, name: &str, field: Field<'_>, value: DocumentNode) {
        if name != field.name {
            self.renamed.push((name.to_owned(), field.name.to_owned()));
        }
        self.document.set(name, field.place, value);
    }

    pub(super) fn set_once(&mut self, name: &str, field: Field<'_>, value: DocumentNode) {
        let before = self.document.get(name).and_then(DocumentNode::scalar);
        if before.is_some() && before != value.scalar() {
            let written = self.renamed.iter().rev().find(|(known, _)| known == name);
            let written = written.map_or(name, |(_, written)| written.as_str());
            let detail = format!("{written} and the field below `deploy` for the same differ; keep one");
            self.mistake(field.value.place(), &detail);
        }
        self.set(name, field, value);
    }

    pub(super) fn add_values(
        &mut self,
        kind: ValueKind,
        place: Option<TextPosition>,
        references: Vec<DocumentNode>,
    ) {
        let field = group(kind);
        let before = self.document.get(field).and_then(DocumentNode::items).unwrap_or_default().to_vec();
        self.document.set(field, place, DocumentNode::list([before, references].concat(), place));
    }

    pub(super) fn mistake(&mut self, place: Option<TextPosition>, detail: &str) {
        self.report.mistake(place, format!("{}: {detail}", self.service));
    }

    pub(super) fn note(&mut self, kind: NoteKind, place: Option<TextPosition>, detail: impl Into<String>) {
        self.report.note(kind, place, self.service, detail);
    }

    pub(crate) fn set_defaults(&mut self, place: Option<TextPosition>) {
        if !self.document.has_field("restart") {
            self.document.set("restart", place, text_at("on-failure", place));
        }
    }
}
