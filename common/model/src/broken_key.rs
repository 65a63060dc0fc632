//! Keys in Redis that cannot be read.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A key in Redis that cannot be read, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct BrokenKey {
    /// The key.
    #[schema(example = "pod:5f0c1d9e")]
    pub key: String,
    /// The problem.
    pub problem: String,
}
