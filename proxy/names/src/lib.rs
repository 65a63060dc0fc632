//! Names of services in the pods of this host: a resolver, and the listener to which connections to their
//! addresses are redirected.
//!
//! - `question` says what a domain name asks for.
//! - [`answer`] decides the answer from what is known, and `response` is the message that says it. All of it
//!   is pure.
//! - `cache` is what is known from Redis, and `resolver` asks for what is not; `forward` passes other names
//!   on.
//! - `names_file` is the file of what was known, for the next process.
//! - `dns` listens for questions, `connections` for connections.
//! - [`rules`] are the rules of the host that lead to both and that keep pods from what is not theirs,
//!   [`closed`] is what that is on other hosts, and `host` keeps all of it going.
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
