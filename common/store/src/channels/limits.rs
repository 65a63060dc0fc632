//! Times and lengths that both sides of a channel keep to.

use std::time::Duration;

/// A side without a frame for this time counts as gone.
pub const PEER_TIMEOUT: Duration = Duration::from_secs(20);
/// Counted from the last write.
pub(crate) const EXPIRE_SECONDS: u64 = 60;
/// With more, requests to connect are refused.
pub(crate) const MAX_REQUESTS: usize = 100;
pub(crate) const QUEUE_LENGTH: usize = 32;
