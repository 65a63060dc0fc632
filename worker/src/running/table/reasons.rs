//! Reasons of containers that are not well.

pub(crate) const RESTARTED: &str = "Restarted";

pub(crate) const STARTING: &str = "Starting";

pub(crate) const NOT_READY: &str = "NotReady";

pub(crate) const UNHEALTHY: &str = "Unhealthy";

pub(crate) const PAUSED: &str = "Paused";

pub(super) fn is_shown_by_checks(reason: &str) -> bool {
    [STARTING, UNHEALTHY, NOT_READY].contains(&reason)
}
