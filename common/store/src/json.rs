//! JSON values for scripts and records.

use serde::Serialize;

/// The type has only strings, numbers and maps with string keys.
pub(crate) fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("domain types serialize")
}
