//! Client of the kubeleet API: one method per route, typed responses and typed errors.

mod channel;
mod endpoint;
mod error;
mod events;
#[cfg(test)]
pub(crate) mod fake_api;
#[cfg(test)]
pub(crate) mod fixtures;
mod http;
mod logs;
mod routes;
mod sse;
#[cfg(test)]
mod tests;

pub(crate) use channel::{ChannelReceiver, ChannelSender, PING_INTERVAL};
pub(crate) use endpoint::ApiUrl;
pub(crate) use error::ClientError;
pub(crate) use events::{EventStream, EventsFrom};
pub(crate) use http::Client;
pub(crate) use logs::{LogQuery, PodLogQuery};
pub(crate) use routes::PodFilter;
