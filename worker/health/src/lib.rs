//! Health checks of the containers on a node: [`probe`] probes a container once, [`judge`] decides from the
//! results, and [`monitor`] does both for all containers on schedule.
//!
//! Imports the engine, for commands in containers, but neither the worker nor the store. `schedule` and
//! `judge` are tested without any clock.
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

/// The purpose of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CheckKind {
    /// `healthcheck`: an unhealthy container is restarted.
    Healthcheck,
    /// `readiness`: the pod of an unhealthy container is not ready.
    Readiness,
}

impl CheckKind {
    /// Returns its name for people.
    pub fn as_str(self) -> &'static str {
        match self {
            CheckKind::Healthcheck => "health check",
            CheckKind::Readiness => "readiness check",
        }
    }
}

/// A check of one running container.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerCheck {
    /// The engine's handle of the container.
    pub handle: String,
    /// Its purpose. A container has at most one check of each kind.
    pub kind: CheckKind,
    /// The method of its probes.
    pub method: ProbeMethod,
    /// Interval and thresholds.
    pub timing: CheckTiming,
    /// The container's address from this node; `None` if unreachable.
    pub address: Option<IpAddr>,
    /// The start of the container.
    pub started: BootInstant,
    /// The health known before: `Starting`, unless this worker continues another one's work.
    pub health: Health,
}

/// A change of a check's health, or of whether its probes are conclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthChange {
    /// The engine's handle of the container.
    pub handle: String,
    /// The kind of the check.
    pub kind: CheckKind,
    /// The container start given to the check: a change of an earlier start is out of date.
    pub started: BootInstant,
    /// The kind of change.
    pub change: CheckChange,
    /// The health from now on.
    pub health: Health,
    /// The reason, for people: the last probe's result, and how often. Empty for a healthy container.
    pub message: String,
    /// The end of the last probe.
    pub at: BootInstant,
}
