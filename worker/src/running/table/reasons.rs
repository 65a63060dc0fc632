//! The reasons of containers that are not well.

/// The reason of a container that was started again after an exit, until it has run for a while.
pub(crate) const RESTARTED: &str = "Restarted";

/// The reason of a container that was started and whose checks have not passed yet.
pub(crate) const STARTING: &str = "Starting";

/// The reason of a container whose readiness check has failed.
pub(crate) const NOT_READY: &str = "NotReady";

/// The reason of a container whose health check has failed.
pub(crate) const UNHEALTHY: &str = "Unhealthy";

/// The reason of a container that another client of the engine has paused.
pub(crate) const PAUSED: &str = "Paused";

/// Returns whether the reason is one of those that checks show, which checks also take back.
pub(super) fn is_shown_by_checks(reason: &str) -> bool {
    [STARTING, UNHEALTHY, NOT_READY].contains(&reason)
}
