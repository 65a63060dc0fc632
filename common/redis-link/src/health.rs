//! Whether there is a connection.

use std::time::Instant;

/// Whether the link is connected to a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkHealth {
    /// The link is connected.
    Connected {
        /// Address of the master.
        master: String,
        /// Number of this connection; every reconnect increments it.
        generation: u64,
    },
    /// The link is not connected.
    Disconnected {
        /// When the connection was lost.
        since: Instant,
        /// Why the latest attempt to connect failed.
        why: String,
    },
}
