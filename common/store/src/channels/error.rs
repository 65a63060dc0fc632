//! Why a channel ends early.

use model::stream::channel::FrameError;
use redis_link::StoreError;

use super::limits::PEER_TIMEOUT;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    #[error("the other side has not answered for {} s", PEER_TIMEOUT.as_secs())]
    PeerGone,
    /// Frames were lost, for example in a failover.
    #[error("a part of the session was lost when Redis changed its master")]
    Lost,
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The other side sent more than [`WINDOW`](model::stream::channel::WINDOW) unread bytes.
    #[error("the other side sends more than may be unread")]
    Overrun,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the session has ended")]
    Closed,
}
