//! Times and lengths that both sides of a channel keep to.

use std::time::Duration;

/// A side without a frame for this time counts as gone.
pub const PEER_TIMEOUT: Duration = Duration::from_secs(20);
/// Requests, records and streams expire so long after their last write.
pub(crate) const EXPIRE_SECONDS: u64 = 60;
/// A worker takes so many at once. With more waiting, requests to connect are refused.
pub(crate) const MAX_REQUESTS: usize = 100;
pub(crate) const QUEUE_LENGTH: usize = 32;
