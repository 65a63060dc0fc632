//! The gates of a host's pods: they count requests in flight to each pod, and close before its stop.
//!
//! Workers report and stop their pods on the socket of [`local`]. [`take_over`] passes the sockets of the
//! process to the next one.
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
pub mod shares;
pub mod socket;
pub mod take_over;
pub mod timer;
mod unknown_callers;
pub mod workers;

pub use counters::describe as describe_metrics;
pub use gates::{Cut, Drained, EnterError, Gates, Pass};
pub use take_over::PodsOfNodes;
