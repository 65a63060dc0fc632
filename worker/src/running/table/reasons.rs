//! Reasons of containers that are not well.

/// Restarted after an exit, until it has run for a while.
pub(crate) const RESTARTED: &str = "Restarted";

/// Started, but its checks have not passed yet.
pub(crate) const STARTING: &str = "Starting";

pub(crate) const NOT_READY: &str = "NotReady";

pub(crate) const UNHEALTHY: &str = "Unhealthy";

/// Another client of the engine paused it.
pub(crate) const PAUSED: &str = "Paused";

/// Returns true if checks set, and clear, this reason.
pub(super) fn is_shown_by_checks(reason: &str) -> bool {
    [STARTING, UNHEALTHY, NOT_READY].contains(&reason)
}
