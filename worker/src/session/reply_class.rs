//! Classifies Redis' replies by the caller's reaction: use it, retry, or give up.

use store::StoreError;

pub(crate) enum ReplyClass<T> {
    Reply(T),
    /// The session may not write any more. Its end was requested.
    Fenced,
    /// Redis is unavailable: try again later.
    Transient(StoreError),
    /// Retrying is useless until a person acts, for example repairs a record.
    Permanent(StoreError),
}
