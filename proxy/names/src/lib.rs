//! Names of services in the pods of this host: a resolver, and a listener for redirected connections.
//!
//! [`answer`] decides from known names; `resolver` asks Redis for missing ones, and `forward` passes other
//! names on. [`rules`] redirects to `dns` and `connections`, and restricts pods; `host` runs all of it.
//!
//! Of this workspace it may import `daemon`, `model`, `store`, `gate`, `tunnel`, `routing` and `ingress`.
//!
//! Tests: names, scenarios::names, scenarios::service_names

pub mod answer;
mod cache;
pub mod closed;
mod connections;
mod dns;
mod forward;
mod host;
mod names_file;
pub mod probe;
mod question;
mod resolver;
mod response;
pub mod rules;

#[cfg(test)]
mod tests;

pub use dns::answer_without_limit;
pub use forward::{Forwarder, RESOLV_CONF};
pub use host::HostNames;
pub use resolver::Resolver;
