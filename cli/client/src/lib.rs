//! Client of the kubeleet API. It imports only the API's types and their parts.
//!
//! Tests: tests, kubeleet::exit::client_tests

mod call;
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

pub use call::{ApiCall, ByteStream};
pub use channel::{ChannelReceiver, ChannelSender, PING_INTERVAL};
pub use endpoint::ApiUrl;
pub use error::{ClientError, found};
pub use events::{EventStream, EventsFrom};
pub use http::Client;
pub use logs::{ItemStream, LogQuery, PodLogQuery};
pub use reqwest::Method;
pub use routes::PodFilter;
pub use shorten::shorten;
