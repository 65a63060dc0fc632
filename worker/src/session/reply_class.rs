//! What to do about a reply of Redis: use it, retry, or give up.

use store::StoreError;

/// A reply of Redis, sorted by what the caller does about it.
pub(crate) enum ReplyClass<T> {
    /// A good reply.
    Reply(T),
    /// This session may not write any more. Its end has been requested.
    Fenced,
    /// Redis is unavailable: try again later.
    Transient(StoreError),
    /// Trying again does not help until a person changes something, for example a broken record.
    Permanent(StoreError),
}
