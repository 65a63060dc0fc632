//! Classifies Redis' replies by the caller's reaction: use it, retry, or give up.

use store::StoreError;

pub(crate) enum ReplyClass<T> {
    Reply(T),
    /// The end of the session was requested.
    Fenced,
    Transient(StoreError),
    /// Retrying is useless until a person acts, for example repairs a record.
    Permanent(StoreError),
}

impl<T> ReplyClass<T> {
    pub(crate) fn reply(self) -> Option<T> {
        match self {
            ReplyClass::Reply(value) => Some(value),
            ReplyClass::Fenced | ReplyClass::Transient(_) | ReplyClass::Permanent(_) => None,
        }
    }
}
