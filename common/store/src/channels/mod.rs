//! Session channels. No process calls another: the API leaves a request for the worker, and both write the
//! frames of a session to a stream each, which exists for as long as both are there.
//!
//! The number of an entry is that of its frame. So a write whose reply was lost is repeated without harm, a
//! reader goes on where it was after a reconnect, and notices frames that a failover has lost. A side that
//! has not read [`WINDOW`](model::stream::channel::WINDOW) bytes makes the other one wait. Each side writes
//! at least every few seconds how much it has read; one that is silent for [`PEER_TIMEOUT`] is gone.
//!
//! Tests: beside the code, scripts::channels, scenarios::exec

mod channel;
mod error;
mod flow;
mod limits;
mod read_loop;
mod throttle;
mod write_loop;

pub use channel::{Channel, ChannelOutcome, ChannelReader, ChannelWriter, Receipt};
pub use error::ChannelError;
pub use limits::PEER_TIMEOUT;
