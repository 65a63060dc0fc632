//! Names of services in the pods of this host: a resolver, and a listener for redirected connections.
//!
//! [`answer`] decides the answer from known names. `resolver` asks Redis for missing ones, which `cache`
//! stores; `forward` passes other names on. `dns` accepts questions, and `connections` accepts connections.
//! [`rules`] redirects to both and restricts pods; `host` runs all of it.
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
