//! Reasons of containers that are not well.

/// After an exit, until it has run for a while.
pub(crate) const RESTARTED: &str = "Restarted";

/// Its checks have not passed yet.
pub(crate) const STARTING: &str = "Starting";

pub(crate) const NOT_READY: &str = "NotReady";

pub(crate) const UNHEALTHY: &str = "Unhealthy";

/// By another client of the engine.
pub(crate) const PAUSED: &str = "Paused";

pub(super) fn is_shown_by_checks(reason: &str) -> bool {
    [STARTING, UNHEALTHY, NOT_READY].contains(&reason)
}
