//! Deadlines of calls to the engine.

use std::time::Duration;

/// Made with each heartbeat. A slower engine counts as unresponsive.
pub(super) const PING: Duration = Duration::from_secs(3);
pub(super) const READ: Duration = Duration::from_secs(10);
/// One hanging container must not delay the others.
pub(super) const INSPECT_IN_LIST: Duration = Duration::from_secs(3);
/// The fence stops the containers it knows long before.
pub(super) const LIST_FOR_FENCE: Duration = Duration::from_secs(120);
pub(super) const WRITE: Duration = Duration::from_secs(60);
pub(super) const IMPORT: Duration = Duration::from_secs(300);
