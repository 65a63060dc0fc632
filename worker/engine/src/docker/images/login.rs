//! What a registry is told of who pulls.

use model::value::ValueBytes;

/// What a registry is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EngineLogin {
    /// The name of a user and a password or token.
    Password { user: String, password: ValueBytes },
    /// An identity token, which has no user.
    Token(ValueBytes),
}
