//! How channels end, and what tells that they do.

use engine::{Container, ContainerState};
use model::stream::channel::Frame;
use store::{ChannelError, ChannelReader};

use crate::session::context::SessionContext;

/// How a channel ended, unless its client has left: the last frame.
pub(super) type ChannelEnd = Option<Frame>;

/// Returns how all channels end with this session of the worker.
pub(super) fn worker_stops(context: &SessionContext) -> Frame {
    let node = &context.worker.node;
    Frame::Failed(format!(
        "the worker of node {node} ends its sessions: it stops, or its node was declared dead"
    ))
}

/// Waits until the client leaves, or cannot be reached, and returns how the channel ends. It sends nothing
/// that counts.
pub(super) async fn until_left(reader: &mut ChannelReader) -> ChannelEnd {
    loop {
        match reader.next().await {
            Ok((Frame::Closed, _)) => return None,
            Ok(_) => {}
            Err(error) => return broken(&error),
        }
    }
}

/// Returns how a channel ends whose other side cannot be reached.
pub(super) fn broken(error: &ChannelError) -> ChannelEnd {
    match error {
        ChannelError::PeerGone | ChannelError::Closed => None,
        other => Some(Frame::Failed(other.to_string())),
    }
}

/// Returns whether the container still runs, and its exit code if it does not.
pub(super) async fn state_of(context: &SessionContext, container: &Container) -> Option<ContainerState> {
    let found = context.worker.runtime.find(&context.worker.node, &container.handle).await;
    found.ok().flatten().map(|container| container.state)
}
