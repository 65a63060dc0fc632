//! Client of the kubeleet API: one method per route, typed responses and typed errors.
//!
//! Commands use it, and so may tests of anything that speaks to the API. It imports the types of the API and
//! what these are made of, and nothing of a daemon, of a terminal or of exit codes. Its tests run it against
//! a fake API; those of the commands, and the scenarios, against the real one.
//!
//! Tests: tests, kubeleet::exit::client_tests

mod channel;
mod endpoint;
mod error;
mod events;
mod http;
mod logs;
mod routes;
mod shorten;
mod sse;
#[cfg(test)]
mod tests;

pub use channel::{ChannelReceiver, ChannelSender, PING_INTERVAL};
pub use endpoint::ApiUrl;
pub use error::ClientError;
pub use events::{EventStream, EventsFrom};
pub use http::Client;
pub use logs::{ItemStream, LogQuery, LogStream, PodLogQuery};
pub use routes::{BackupStream, PodFilter};
pub use shorten::shorten;
