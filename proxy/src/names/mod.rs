//! The resolver of this host's pods: it answers names of services and slots, and forwards all others.
//!
//! - `question` says what a domain name asks for.
//! - [`answer`] decides the answer from what is known, and `response` is the message that says it.
//!
//! All of it is pure. Nothing uses it yet: the server that listens and forwards, the listener of redirected connections, and the rules of the
//! host that lead to both are still to come.

pub mod answer;
mod question;
mod response;

#[cfg(test)]
mod tests;
