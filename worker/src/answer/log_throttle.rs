//! Limits log readers, because Redis and its replicas carry heartbeats too.

use daemon::token_bucket::TokenBucket;
use model::ids::NodeName;

/// Maximum number of concurrent log requests of a node. They share its write rate.
pub(crate) const MAX_READERS: usize = 128;
/// Rate of one answer in bytes per second, and its burst in bytes.
const BYTES_PER_SECOND: f64 = 1_048_576.0;
const BYTES_PER_SECOND_OF_ALL: f64 = 4.0 * BYTES_PER_SECOND;

pub(crate) fn too_many_readers(node: &NodeName) -> String {
    format!("{node} answers {MAX_READERS} log requests already; try again when one of them has ended")
}

pub(crate) fn throttle_of_one() -> TokenBucket {
    TokenBucket::new(BYTES_PER_SECOND)
}

pub(crate) fn throttle_of_all() -> TokenBucket {
    TokenBucket::new(BYTES_PER_SECOND_OF_ALL)
}
