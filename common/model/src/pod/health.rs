//! The health of a container.

use serde::{Deserialize, Serialize};

/// The results of the probes of one check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Not yet enough to decide.
    #[default]
    Starting,
    /// As many in a row have passed as the threshold says, and fewer have failed since.
    Healthy,
    /// As many in a row have failed as the threshold says, and fewer have passed since.
    Unhealthy,
}

impl Health {
    pub fn as_str(self) -> &'static str {
        match self {
            Health::Starting => "starting",
            Health::Healthy => "healthy",
            Health::Unhealthy => "unhealthy",
        }
    }
}
