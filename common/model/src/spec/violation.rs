//! Violations of the rules for values.

/// A well-formed but invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {detail}")]
pub struct Violation {
    /// JSON pointer; `""` for the whole document.
    pub pointer: String,
    /// The problem and the valid values.
    pub detail: String,
}

impl Violation {
    pub(crate) fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }
}
