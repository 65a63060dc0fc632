//! The findings of `kubeleet cluster check`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Something that is wrong in Redis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FindingView {
    /// The key that is wrong.
    pub key: String,
    /// What is wrong.
    pub problem: String,
    /// What a repair does about it.
    pub repair: String,
    /// Whether it was repaired just now.
    #[serde(default)]
    pub repaired: bool,
}
