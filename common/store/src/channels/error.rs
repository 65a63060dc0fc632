//! Why a channel ends.

use model::stream::channel::FrameError;
use redis_link::StoreError;

use super::limits::PEER_TIMEOUT;

/// Why a channel ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// The other side has not written anything for [`PEER_TIMEOUT`].
    #[error("the other side has not answered for {} s", PEER_TIMEOUT.as_secs())]
    PeerGone,
    /// Frames were lost, for example in a failover.
    #[error("a part of the session was lost when Redis changed its master")]
    Lost,
    /// The other side sent something that is no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The other side sent more than may be unread.
    #[error("the other side sends more than may be unread")]
    Overrun,
    /// Redis.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// This side has closed it.
    #[error("the session has ended")]
    Closed,
}
