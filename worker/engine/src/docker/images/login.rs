//! Credentials sent to a registry.

use model::value::ValueBytes;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EngineLogin {
    Password { user: String, password: ValueBytes },
    Token(ValueBytes),
}
