//! Questions to workers. The API leaves a request for the worker of a node; each side writes its frames to a
//! stream of its own.
//!
//! The id of an entry is the number of its frame. So a write can be repeated after a lost reply, and a reader
//! notices lost frames. A side with [`WINDOW`](model::stream::channel::WINDOW) unread bytes makes the other
//! wait. Each side reports its reads every few seconds; one that is silent for [`PEER_TIMEOUT`] is gone.
//!
//! Tests: beside the code, scripts::channels, scenarios::exec

mod answer;
mod channel;
mod error;
mod flow;
mod limits;
mod read_loop;
mod request;
mod write_loop;

pub use answer::NodeAnswer;
pub use channel::{Channel, ChannelOutcome, ChannelReader, ChannelWriter, Receipt};
pub use error::ChannelError;
pub use limits::PEER_TIMEOUT;
pub use request::{ConnectRequest, LinesRequest, LogRequest, LoggedPod, NodeQuestion, NodeRequest};
