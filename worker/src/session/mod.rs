//! The sessions of a worker with its cluster. Begin with `sessions`; `context` is what its loops share.
//!
//! Tests: beside the code, tests::sessions, scenarios::leaving, schedules

pub(crate) mod beat;
pub(crate) mod broken_records;
pub(crate) mod context;
pub(crate) mod fenced_signal;
pub(crate) mod heartbeat;
pub(crate) mod identity;
pub(crate) mod link_state;
pub(crate) mod name_watch;
pub(crate) mod redis_throttle;
pub(crate) mod register;
pub(crate) mod registrations;
pub(crate) mod reply_class;
pub(crate) mod sessions;
pub(crate) mod tasks;
pub(crate) mod unknown_cluster;
pub(crate) mod wakeups;
