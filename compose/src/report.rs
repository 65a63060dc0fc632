//! What there is to say about the files: mistakes, and what is done in another way than Compose does it.

use std::fmt;

use document::TextPosition;

/// Something to say about a place in one of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComposeFinding {
    /// The file.
    pub file: String,
    /// The place in it, if it is about one.
    pub place: Option<TextPosition>,
    /// What there is to say.
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

/// What a note is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoteKind {
    /// Something of the file has no effect.
    NotHonoured,
    /// Something of the file has another effect than with Compose.
    Different,
    /// A variable is not set.
    Unset,
    /// Something is as with Compose, but perhaps not as its author means it.
    Hint,
}

/// What a user should know although the files can be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What it is about.
    pub kind: NoteKind,
    /// The file, the first place, and what there is to say.
    pub finding: ComposeFinding,
}

/// The mistakes and notes so far, and the files that they are about.
#[derive(Default)]
pub(crate) struct Report {
    files: Vec<String>,
    mistakes: Vec<ComposeFinding>,
    notes: Vec<NoteDraft>,
}

/// A note, which may be about several services.
struct NoteDraft {
    kind: NoteKind,
    place: Option<TextPosition>,
    services: Vec<String>,
    detail: String,
}

impl Report {
    /// Returns the number of a file, which the places in it have.
    pub(crate) fn add_file(&mut self, name: &str) -> usize {
        match self.files.iter().position(|known| known == name) {
            Some(number) => number,
            None => {
                self.files.push(name.to_owned());
                self.files.len() - 1
            }
        }
    }

    /// Adds a mistake at a place of a file.
    pub(crate) fn mistake(&mut self, place: Option<TextPosition>, detail: impl Into<String>) {
        let finding = self.finding(place, detail.into());
        if !self.mistakes.contains(&finding) {
            self.mistakes.push(finding);
        }
    }

    /// Adds a mistake about a whole file.
    pub(crate) fn mistake_of_file(&mut self, file: &str, detail: impl Into<String>) {
        self.mistakes.push(ComposeFinding { file: display_name(file), place: None, detail: detail.into() });
    }

    /// Adds a note about a service, or to the note that says the same about another one.
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

    /// Returns whether there are mistakes.
    pub(crate) fn has_mistakes(&self) -> bool {
        !self.mistakes.is_empty()
    }

    /// Returns the mistakes in the order of the files, with the variables that are not set: these are often
    /// the reason.
    pub(crate) fn into_mistakes(mut self) -> Vec<ComposeFinding> {
        for note in std::mem::take(&mut self.notes) {
            if note.kind == NoteKind::Unset {
                self.mistake(note.place, note.detail);
            }
        }
        self.mistakes.sort_by_key(|finding| finding.place);
        self.mistakes
    }

    /// Returns the notes in the order of the files.
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

/// Notes the variables of a file that are not set.
pub(crate) fn note_unset(path: &str, names: Vec<(u64, String)>, report: &mut Report) {
    for (line, name) in names {
        let file = report.add_file(path);
        report.note(NoteKind::Unset, Some(TextPosition { file, line, column: 1 }), "", unset(&name));
    }
}

/// Returns what there is to say about a variable that is not set.
pub(crate) fn unset(name: &str) -> String {
    format!("variable {name} is not set; nothing stands in its place")
}
