//! The network between the processes and Redis.

use std::collections::HashSet;

use bytes::Bytes;

use crate::machine::bus::RedisRequest;

pub(crate) struct PendingHint {
    pub(crate) deliver_at: u64,
    pub(crate) channel: String,
    pub(crate) message: Bytes,
}

#[derive(Default)]
pub(crate) struct Network {
    pub(crate) hints: Vec<PendingHint>,
    /// Dropping one would tell its sender.
    pub(crate) unanswered: Vec<RedisRequest>,
    pub(crate) silent_connections: HashSet<u64>,
}
