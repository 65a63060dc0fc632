//! Secrets and configs, their encryption, and the logins for registries.

mod record;
pub mod registry;
pub mod secret;
pub mod secret_key;

pub use record::{KEPT_VERSIONS, MAX_VALUE_BYTES, ReadError, StoredValue, ValueBytes, ValueInfo, ValueKind};
