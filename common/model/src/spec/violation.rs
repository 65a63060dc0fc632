//! What is wrong with a value.

/// A well-formed but invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {detail}")]
pub struct Violation {
    /// JSON pointer to the field; `""` for the whole document.
    pub pointer: String,
    /// What is wrong with the value, and which values are valid.
    pub detail: String,
}

impl Violation {
    pub(crate) fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }
}
