//! How long calls to the engine may take.

use std::time::Duration;

/// A ping, made with each heartbeat: a slower engine counts as one that does not answer.
pub(super) const PING: Duration = Duration::from_secs(3);
/// Calls that only read.
pub(super) const READ: Duration = Duration::from_secs(10);
/// One inspection while containers are listed: a container that cannot be inspected must not hold up others.
pub(super) const INSPECT_IN_LIST: Duration = Duration::from_secs(3);
/// The list that the fence waits for. It stops what it knows of long before.
pub(super) const LIST_FOR_FENCE: Duration = Duration::from_secs(120);
/// Calls that create or remove; an engine under load needs its time.
pub(super) const WRITE: Duration = Duration::from_secs(60);
/// The import of an image, which is written to the engine's disk.
pub(super) const IMPORT: Duration = Duration::from_secs(300);
