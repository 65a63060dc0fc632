//! Logins for image registries. Responses never contain passwords.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{DurabilityView, rfc3339};
use model::ids::RegistryHost;
use model::value::ValueBytes;
use model::value::registry::RegistryInfo;

/// The user and password for a registry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegistryInput {
    /// The user's name.
    pub user: String,
    /// The password or token.
    pub password: ValueBytes,
}

/// A registry and its user, without the password.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RegistryView {
    /// The registry, as in the names of images.
    pub host: RegistryHost,
    /// The user's name.
    pub user: String,
    /// When user and password were stored.
    pub updated_at: String,
    /// Whether Redis' replicas have confirmed the write. Only in responses to writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<DurabilityView>,
    /// Why it is not known whether the registry accepts this login. Only in responses to writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

impl From<RegistryInfo> for RegistryView {
    fn from(info: RegistryInfo) -> Self {
        Self {
            host: info.host,
            user: info.user,
            updated_at: rfc3339(info.updated_at),
            durability: None,
            warning: None,
        }
    }
}
