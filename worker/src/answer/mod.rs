//! Answers requests of people and processes through Redis: logs, channels, images, logins.
//!
//! Tests: beside the code, tests::logs, scenarios::logs, scenarios::exec

pub(crate) mod channels;
pub(crate) mod lines;
pub(crate) mod log_answer;
pub(crate) mod log_requests;
pub(crate) mod log_throttle;
pub(crate) mod login_check;
pub(crate) mod pull_ahead;
pub(crate) mod recovery;
pub(crate) mod requested_container;
