//! Locks of apps: the body of `PUT /app/{name}/lock`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use model::ids::LockId;

/// A client that is about to change an app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AppLockInput {
    /// A random id. With the same id the lock is renewed.
    pub id: LockId,
    /// A name of the client for others, such as `ann@laptop`.
    pub holder: String,
}
