//! Streams that last: events, logs of several pods, forwarded ports, and the bound on all of them.

pub(crate) mod event_feed;
pub(crate) mod forwards;
pub(crate) mod merged_logs;
pub(crate) mod open_streams;
