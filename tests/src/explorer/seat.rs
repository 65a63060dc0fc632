//! Where processes run, and the small parts of their world.

use bytes::Bytes;

use super::process::Process;

/// The times that all is about, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) heartbeat: u64,
    pub(super) fence: u64,
    pub(super) dead: u64,
    /// After a change of master nobody is declared dead for so long.
    pub(super) pause: u64,
}

/// Where a process runs, over all its lives.
#[derive(Default)]
pub(super) struct Seat {
    pub(super) process: Option<Process>,
    pub(super) down_until: u64,
    pub(super) paused_until: u64,
    pub(super) cut_until: u64,
    /// Cut off so that only answers do not pass.
    pub(super) deaf: bool,
    /// Its machine sleeps, and so does its clock.
    pub(super) suspended_until: u64,
    /// How far its clock is behind.
    pub(super) slept: u64,
}

/// A wake-up on its way.
pub(super) struct Hint {
    pub(super) at: u64,
    pub(super) channel: String,
    pub(super) message: Bytes,
}
