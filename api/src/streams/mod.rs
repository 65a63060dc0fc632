//! Long-lived streams, with a limit for all of them.

pub(crate) mod event_feed;
pub(crate) mod forwards;
pub(crate) mod merged_logs;
pub(crate) mod open_streams;
