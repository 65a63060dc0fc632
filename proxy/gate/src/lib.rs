//! The gates of a host's pods: they count what is in flight to each pod, and close before it is stopped.
//!
//! - [`Gates`] has the gates, and [`local`] is the socket on which the workers of this host say where their
//!   pods are, and that one is to be stopped; [`workers`] has what they said.
//! - [`listening`] has the sockets of the process; [`take_over`] gives them to the next one, whose gates are
//!   kept in step with those of this one.
//! - The rest is what all parts of the proxy share: sockets, timers, fair shares, files.
//!
//! Of this workspace it may import `daemon` and `model` only.
//!
//! Tests: gate, worker::handing_over, scenarios::handover, scenarios::take_over

mod counters;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
mod gates;
pub mod listening;
pub mod local;
pub mod name_reach;
mod pods_file;
pub mod rarely;
pub mod saved_file;
pub mod shares;
pub mod socket;
pub mod take_over;
pub mod timer;
pub mod workers;

pub use counters::describe as describe_metrics;
pub use gates::{Cut, Drained, EnterError, Gates, Pass};
pub use pods_file::PodsOfNodes;
