//! Values: secrets and configs in versions (`record`), their encryption (`secret`, `secret_key`), and the
//! logins for registries, encrypted with the same key.

mod record;
pub mod registry;
pub mod secret;
pub mod secret_key;

pub use record::{KEPT_VERSIONS, MAX_VALUE_BYTES, ReadError, StoredValue, ValueBytes, ValueInfo, ValueKind};
