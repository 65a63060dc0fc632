//! Client of the kubeleet API: one method per route, typed responses and typed errors.
//!
//! Commands use it, and so may tests of anything that speaks to the API. It imports only the API's types and
//! their parts, nothing of daemons, terminals or exit codes. Its own tests use a fake API; tests of commands
//! and the scenarios use the real one.
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
