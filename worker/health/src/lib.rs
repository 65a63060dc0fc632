//! Health checks of the containers on a node: [`probe`] asks a container once, [`judge`] decides from the
//! results, and [`monitor`] does both for all containers, each at its time.
//!
//! Imports the engine, for commands in containers, and neither the worker nor the store. `schedule` and
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

/// What a check is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CheckKind {
    /// `healthcheck`: an unhealthy container is restarted.
    Healthcheck,
    /// `readiness`: the pod of an unhealthy container is not ready.
    Readiness,
}

impl CheckKind {
    /// Returns what people call it.
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
    /// What it is for. A container has at most one of each kind.
    pub kind: CheckKind,
    /// How the container is probed.
    pub method: ProbeMethod,
    /// How often, and how many results decide.
    pub timing: CheckTiming,
    /// Where the container can be reached from this node; `None` if it cannot.
    pub address: Option<IpAddr>,
    /// When the container was started.
    pub started: BootInstant,
    /// What was known of it before: `Starting`, unless this worker continues the work of another one.
    pub health: Health,
}

/// A check of a container has shown another health, or whether it shows anything at all has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthChange {
    /// The engine's handle of the container.
    pub handle: String,
    /// The check of it that has changed.
    pub kind: CheckKind,
    /// The start that the check was for, as it was given: a change of an earlier start is out of date.
    pub started: BootInstant,
    /// What has changed.
    pub change: CheckChange,
    /// Its health from now on.
    pub health: Health,
    /// Why, for people: what the last probe found, and how often. Empty for what is well.
    pub message: String,
    /// When the last probe ended.
    pub at: BootInstant,
}
