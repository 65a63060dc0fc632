//! `kind`: the purpose of a service's pods.

use serde::{Deserialize, Serialize};

/// The kind of a service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Its pods serve for as long as the service exists.
    #[default]
    Service,
    /// Its pods end. An index is complete when a pod of it has ended with exit code 0.
    Job,
    /// It has no pods of its own: at the times of its schedule it creates a job.
    Cron,
}

impl Kind {
    pub fn is_service(&self) -> bool {
        *self == Self::Service
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Job => "job",
            Self::Cron => "cron",
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}
