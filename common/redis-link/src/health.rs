//! The state of a link: connected, or why not.

use std::time::Instant;

/// Connection state of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkHealth {
    /// Connected.
    Connected {
        /// Address of the master.
        master: String,
        /// Number of this connection; every reconnect increments it.
        generation: u64,
    },
    /// Not connected.
    Disconnected {
        /// Time of the loss.
        since: Instant,
        /// Reason of the latest failed attempt.
        why: String,
    },
}
