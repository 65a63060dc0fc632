//! Times and lengths that both sides of a channel keep to.

use std::time::Duration;

/// After this time without a frame the other side counts as gone.
pub const PEER_TIMEOUT: Duration = Duration::from_secs(20);
/// Requests, records and streams expire this number of seconds after they were last written.
pub(crate) const EXPIRE_SECONDS: u64 = 60;
/// The number of requests that may wait for one worker.
pub(crate) const MAX_REQUESTS: u64 = 100;
/// The number of frames that wait to be written together.
pub(crate) const QUEUE_LENGTH: usize = 32;
