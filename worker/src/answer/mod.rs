//! Answers requests of people and processes through Redis: logs, connections to pods, images, logins.
//!
//! Tests: beside the code, tests::logs, scenarios::logs, scenarios::exec

mod connect;
mod ends;
mod lines;
pub(crate) mod log_writer;
mod login_check;
mod output;
mod pull_ahead;
pub(crate) mod recovery;
mod requested_container;
pub(crate) mod requests;
