//! The findings of `kubeleet cluster check`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Something that is wrong in Redis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FindingView {
    /// The key that is wrong.
    pub key: String,
    /// The problem.
    pub problem: String,
    /// The action of a repair.
    pub repair: String,
    /// Whether it was repaired just now.
    #[serde(default)]
    pub repaired: bool,
}
