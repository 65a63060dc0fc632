//! YAML, JSON and queries that people write, with every mistake in plain words at its place.
//!
//! The parsers' own errors are for programmers, stop at the first mistake, and lose positions. Here a text
//! first becomes [`DocumentNode`]s, which keep them. [`read`] turns a node into any `Deserialize` type, and
//! collects the mistakes.
//!
//! Tests: beside the code, model::spec::input::document_tests

mod access;
mod deserialize;
pub mod json_pointer;
mod mistake;
mod node;
mod number;
mod parse;
mod syntax;
#[cfg(test)]
mod tests;

use serde::Deserialize;
use serde::de::DeserializeOwned;

pub use access::Field;
pub use deserialize::field_names;
use deserialize::{DocumentPart, FieldsDeserializer};
pub use mistake::{DocumentReadError, Values};
pub use mistake::{Mistake, Vocabulary, nearest};
pub use node::{DocumentNode, TextPosition};
pub use number::whole;
pub use parse::{json, yaml};

/// Each costs another pass over the document.
pub const MAX_MISTAKES: usize = 20;

#[derive(Debug)]
pub struct Reading<T> {
    /// Without the faulty parts.
    pub value: Option<T>,
    pub mistakes: Vec<Mistake>,
}

impl<T> Reading<T> {
    /// Fails with all mistakes.
    pub fn into_result(self) -> Result<T, Vec<Mistake>> {
        match self.value {
            Some(value) if self.mistakes.is_empty() => Ok(value),
            _ => Err(self.mistakes),
        }
    }
}

/// Unknown fields are mistakes.
pub fn read<T: DeserializeOwned>(document: &DocumentNode, vocabulary: Vocabulary) -> Reading<T> {
    read_with(document, vocabulary, |node| read_once(node))
}

/// Removes each faulty part and reads the rest again, so only the types describe valid documents.
pub fn read_with<T>(
    document: &DocumentNode,
    vocabulary: Vocabulary,
    reader: impl Fn(&DocumentNode) -> Result<T, DocumentReadError>,
) -> Reading<T> {
    let mut rest = std::borrow::Cow::Borrowed(document);
    let mut mistakes = Vec::new();
    loop {
        let error = match reader(&rest) {
            Ok(value) => return Reading { value: Some(value), mistakes: sorted(mistakes) },
            Err(error) => error,
        };
        let faulty = error.faulty_part();
        let is_new = !mistakes.iter().any(|(_, known): &(_, Mistake)| known.pointer == error.pointer());
        if is_new {
            mistakes.push((position(document, &error), error.mistake(&rest, vocabulary)));
        }
        let goes_on = mistakes.len() < MAX_MISTAKES && !faulty.is_empty() && rest.to_mut().remove(faulty);
        if !goes_on {
            return Reading { value: None, mistakes: sorted(mistakes) };
        }
    }
}

/// Fails at the first mistake.
pub fn read_once<'de, T: Deserialize<'de>>(document: &'de DocumentNode) -> Result<T, DocumentReadError> {
    T::deserialize(DocumentPart(document)).map_err(DocumentReadError::at_root)
}

/// The map may have fields of other structs. `null` counts as left out.
pub fn read_fields<T: DeserializeOwned>(map: &DocumentNode) -> Result<T, DocumentReadError> {
    T::deserialize(FieldsDeserializer(map)).map_err(DocumentReadError::at_root)
}

/// Fails at the first unknown field.
pub fn check_fields(map: &DocumentNode, known: &[&'static str]) -> Result<(), DocumentReadError> {
    match map.field_names().find(|name| !known.contains(name)) {
        Some(name) => Err(DocumentReadError::unknown(name, known.to_vec()).at_root()),
        None => Ok(()),
    }
}

fn position(document: &DocumentNode, error: &DocumentReadError) -> Vec<usize> {
    let mut position = document.position_of(error.faulty_part());
    if error.is_about_missing() {
        position.push(usize::MAX);
    }
    position
}

/// By position: JSON has none, but an order.
fn sorted(mut mistakes: Vec<(Vec<usize>, Mistake)>) -> Vec<Mistake> {
    mistakes.sort_by(|(position, mistake), (other_position, other)| {
        mistake.place.cmp(&other.place).then_with(|| position.cmp(other_position))
    });
    mistakes.into_iter().map(|(_, mistake)| mistake).collect()
}
