//! Findings about the files: mistakes, and differences from Compose.

use std::fmt;

use document::TextPosition;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComposeFinding {
    pub file: String,
    pub place: Option<TextPosition>,
    pub detail: String,
}

impl fmt::Display for ComposeFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some(place) => write!(f, "{}:{}:{}: {}", self.file, place.line, place.column, self.detail),
            None => write!(f, "{}: {}", self.file, self.detail),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoteKind {
    NotHonoured,
    /// Behaves differently than with Compose.
    Different,
    Unset,
    /// Behaves as with Compose, but perhaps not as intended.
    Hint,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub kind: NoteKind,
    pub finding: ComposeFinding,
}

#[derive(Default)]
pub(crate) struct Report {
    files: Vec<String>,
    mistakes: Vec<ComposeFinding>,
    notes: Vec<NoteDraft>,
}

struct NoteDraft {
    kind: NoteKind,
    place: Option<TextPosition>,
    services: Vec<String>,
    detail: String,
}

impl Report {
    /// The number that positions in this file carry.
    pub(crate) fn add_file(&mut self, name: &str) -> usize {
        match self.files.iter().position(|known| known == name) {
            Some(number) => number,
            None => {
                self.files.push(name.to_owned());
                self.files.len() - 1
            }
        }
    }

    pub(crate) fn mistake(&mut self, place: Option<TextPosition>, detail: impl Into<String>) {
        let finding = self.finding(place, detail.into());
        if !self.mistakes.contains(&finding) {
            self.mistakes.push(finding);
        }
    }

    pub(crate) fn mistake_of_file(&mut self, file: &str, detail: impl Into<String>) {
        self.mistakes.push(ComposeFinding { file: display_name(file), place: None, detail: detail.into() });
    }

    /// Equal notes of several services become one.
    pub(crate) fn note(
        &mut self,
        kind: NoteKind,
        place: Option<TextPosition>,
        service: &str,
        detail: impl Into<String>,
    ) {
        let detail = detail.into();
        match self.notes.iter_mut().find(|note| note.kind == kind && note.detail == detail) {
            Some(note) if note.services.iter().any(|known| known == service) => {}
            Some(note) => note.services.push(service.to_owned()),
            None => self.notes.push(NoteDraft { kind, place, services: vec![service.to_owned()], detail }),
        }
    }

    pub(crate) fn has_mistakes(&self) -> bool {
        !self.mistakes.is_empty()
    }

    /// In file order, with unset variables, which are often the cause.
    pub(crate) fn into_mistakes(mut self) -> Vec<ComposeFinding> {
        for note in std::mem::take(&mut self.notes) {
            if note.kind == NoteKind::Unset {
                self.mistake(note.place, note.detail);
            }
        }
        self.mistakes.sort_by_key(|finding| finding.place);
        self.mistakes
    }

    pub(crate) fn into_notes(mut self) -> Vec<Note> {
        let mut drafts = std::mem::take(&mut self.notes);
        drafts.sort_by_key(|draft| draft.place);
        let note = |draft: NoteDraft| {
            let services: Vec<_> = draft.services.into_iter().filter(|name| !name.is_empty()).collect();
            let detail = match services.is_empty() {
                true => draft.detail,
                false => format!("{}: {}", services.join(", "), draft.detail),
            };
            Note { kind: draft.kind, finding: self.finding(draft.place, detail) }
        };
        drafts.into_iter().map(note).collect()
    }

    fn finding(&self, place: Option<TextPosition>, detail: String) -> ComposeFinding {
        let file = place.and_then(|place| self.files.get(place.file)).or(self.files.first());
        ComposeFinding { file: file.map(|file| display_name(file)).unwrap_or_default(), place, detail }
    }
}

fn display_name(file: &str) -> String {
    if file == crate::source::STDIN { "standard input".to_owned() } else { file.to_owned() }
}

pub(crate) fn note_unset(path: &str, names: Vec<(u64, String)>, report: &mut Report) {
    for (line, name) in names {
        let file = report.add_file(path);
        report.note(NoteKind::Unset, Some(TextPosition { file, line, column: 1 }), "", unset(&name));
    }
}

pub(crate) fn unset(name: &str) -> String {
    format!("variable {name} is not set; nothing stands in its place")
}
