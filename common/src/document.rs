//! Documents that people write: YAML, JSON and queries, read with every mistake in plain words at its place.
//!
//! The parsers' own errors speak to programmers, stop at the first mistake, and lose the position of a value
//! once it is read. Here a text first becomes [`Node`]s, which know their places. [`read`] then turns a node
//! into any type that implements `Deserialize`, and collects the mistakes.

mod deserialize;
mod mistake;
mod node;
mod parse;
mod syntax;
#[cfg(test)]
mod tests;

use serde::Deserialize;

use deserialize::Part;
pub use mistake::{Mistake, Vocabulary};
pub(crate) use mistake::{ReadError, Values};
pub use node::{Node, Place};
pub use parse::{json, yaml};

/// The most mistakes that are reported for one document. Each takes another pass over the document.
const MAX_MISTAKES: usize = 20;

/// A document that was read into `T`.
#[derive(Debug)]
pub struct Reading<T> {
    /// What the document says. If there are mistakes: what it says without the parts that have them, if that
    /// is a `T`.
    pub value: Option<T>,
    /// The mistakes, in the order of the document.
    pub mistakes: Vec<Mistake>,
}

impl<T> Reading<T> {
    /// Returns the value of a document without mistakes.
    ///
    /// # Errors
    /// All mistakes.
    pub fn into_result(self) -> Result<T, Vec<Mistake>> {
        match self.value {
            Some(value) if self.mistakes.is_empty() => Ok(value),
            _ => Err(self.mistakes),
        }
    }
}

/// Reads a document into `T`, and collects up to 20 mistakes.
///
/// What has a mistake is taken out of the document, and the rest is read again: so the types themselves remain
/// the only description of what a document may say.
pub fn read<T: for<'de> Deserialize<'de>>(document: &Node, vocabulary: Vocabulary) -> Reading<T> {
    let mut rest = std::borrow::Cow::Borrowed(document);
    let mut mistakes = Vec::new();
    loop {
        let error = match read_once(&rest) {
            Ok(value) => return Reading { value: Some(value), mistakes: sorted(mistakes) },
            Err(error) => error,
        };
        let faulty = error.faulty_part();
        let is_new = !mistakes.iter().any(|known: &Mistake| known.pointer == error.pointer());
        if is_new {
            mistakes.push(error.mistake(&rest, vocabulary));
        }
        let goes_on = mistakes.len() < MAX_MISTAKES && !faulty.is_empty() && rest.to_mut().remove(faulty);
        if !goes_on {
            return Reading { value: None, mistakes: sorted(mistakes) };
        }
    }
}

/// Reads a document into `T`.
///
/// # Errors
/// The first mistake.
pub(crate) fn read_once<'de, T: Deserialize<'de>>(document: &'de Node) -> Result<T, ReadError> {
    T::deserialize(Part(document)).map_err(ReadError::at_root)
}

fn sorted(mut mistakes: Vec<Mistake>) -> Vec<Mistake> {
    mistakes.sort_by_key(|mistake| mistake.place);
    mistakes
}
