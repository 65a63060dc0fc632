//! Health checks of the containers on a node: [`probe`] probes once, [`judge`] decides from the results, and
//! [`monitor`] does both for all containers on schedule.
//!
//! Tests: health, worker::health, scenarios::updates

pub mod judge;
pub mod monitor;
pub mod probe;
mod schedule;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use daemon::clock::BootInstant;
use model::pod::health::Health;
use model::spec::{CheckTiming, ProbeMethod};

pub use self::judge::CheckChange;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CheckKind {
    /// An unhealthy container is restarted.
    Healthcheck,
    /// Such a pod is not ready.
    Readiness,
}

impl CheckKind {
    pub fn as_str(self) -> &'static str {
        match self {
            CheckKind::Healthcheck => "health check",
            CheckKind::Readiness => "readiness check",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ContainerCheck {
    pub handle: String,
    /// A container has at most one of each kind.
    pub kind: CheckKind,
    pub method: ProbeMethod,
    pub timing: CheckTiming,
    pub address: Option<IpAddr>,
    pub started: BootInstant,
    /// `Starting`, unless this worker continues another one's work.
    pub health: Health,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthChange {
    pub handle: String,
    pub kind: CheckKind,
    /// A change of an earlier start of the container is out of date.
    pub started: BootInstant,
    pub change: CheckChange,
    pub health: Health,
    /// For people. Empty for a healthy container.
    pub message: String,
    pub at: BootInstant,
}
