//! The state of a link: connected, or why not.

use std::time::Instant;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkHealth {
    Connected {
        /// Its address.
        master: String,
        /// Every reconnect increments it.
        generation: u64,
    },
    Disconnected {
        since: Instant,
        /// Of the latest failed attempt.
        why: String,
    },
}
