//! Reasons for the end of channels.

use engine::{Container, ContainerState};
use model::stream::channel::Frame;
use store::{ChannelError, ChannelReader};

use crate::session::context::SessionContext;

/// The last frame. `None` if there is none to send: the client has left, or asks again.
pub(super) type ChannelEnd = Option<Frame>;

pub(super) fn worker_stops(context: &SessionContext) -> Frame {
    let node = &context.worker.node;
    Frame::Failed(format!(
        "the worker of node {node} ends its sessions: it stops, or its node was declared dead"
    ))
}

pub(super) async fn until_left(reader: &mut ChannelReader) -> ChannelEnd {
    loop {
        match reader.next().await {
            Ok((Frame::Closed, _)) => return None,
            Ok(_) => {}
            Err(error) => return broken(&error),
        }
    }
}

pub(super) fn broken(error: &ChannelError) -> ChannelEnd {
    match error {
        ChannelError::PeerGone | ChannelError::Closed => None,
        other => Some(Frame::Failed(other.to_string())),
    }
}

pub(super) async fn state_of(context: &SessionContext, container: &Container) -> Option<ContainerState> {
    let found = context.worker.runtime.find(&context.worker.node, &container.handle).await;
    found.ok().flatten().map(|container| container.state)
}
