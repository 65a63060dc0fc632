//! The state of a link.

use std::time::Instant;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkHealth {
    Connected {
        master: String,
        /// Every reconnect increments it.
        generation: u64,
    },
    Disconnected {
        since: Instant,
        why: String,
    },
}
