//! Questions to workers without further input, and the client's side of their answers.

use std::time::Duration;

use futures_util::FutureExt;
use redis::cmd;

use super::channel::{Channel, ChannelSide};
use super::error::ChannelError;
use super::limits::EXPIRE_SECONDS;
use super::request::{NodeQuestion, NodeRequest};
use crate::{Store, StoreError, keys};
use model::ids::{NodeName, RequestId};
use model::stream::channel::Frame;

const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Dropping it tells the worker that its client has left.
pub struct NodeAnswer {
    store: Store,
    id: RequestId,
    channel: Option<Channel>,
    has_ended: bool,
}

impl Store {
    /// The worker answers with output, then an exit or a failure.
    pub async fn ask(&self, node: &NodeName, question: NodeQuestion) -> Result<NodeAnswer, StoreError> {
        let request = NodeRequest::new(question);
        let record = keys::channel_record(&request.id);
        let mut pipe = redis::pipe();
        pipe.cmd("HSET").arg(&record).arg("node").arg(node.as_str()).ignore();
        pipe.cmd("EXPIRE").arg(&record).arg(EXPIRE_SECONDS).ignore();
        request.leave(node, &mut pipe);
        let () = self.link.pipeline(&pipe).await?;
        let channel = self.channel(&request.id, ChannelSide::Client, false);
        Ok(NodeAnswer { store: self.clone(), id: request.id, channel: Some(channel), has_ended: false })
    }

    /// Ends an answer as its worker, after both halves of the channel were dropped.
    pub async fn end_answer(&self, id: &RequestId) -> Result<(), StoreError> {
        self.link.query(cmd("DEL").arg(keys::channel_record(id)).arg(keys::channel_input(id))).await
    }
}

impl NodeAnswer {
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> Result<Frame, ChannelError> {
        let Some(channel) = &mut self.channel else { return Err(ChannelError::Closed) };
        let (frame, _receipt) = channel.reader.next().await?;
        self.has_ended |= frame.is_last();
        Ok(frame)
    }

    pub fn arrived(&mut self) -> Option<Result<Frame, ChannelError>> {
        self.next().now_or_never()
    }

    /// A live worker writes every 5 s.
    pub fn silence(&self) -> Duration {
        self.channel.as_ref().map_or(Duration::ZERO, |channel| channel.reader.silence())
    }

    /// Returns the output and the failure; `None` if it has not ended after `limit`.
    pub async fn whole(mut self, limit: Duration) -> Result<Option<(Vec<u8>, String)>, StoreError> {
        let reading = async {
            let mut output = Vec::new();
            loop {
                match self.next().await {
                    Ok(Frame::Output(bytes)) => output.extend_from_slice(&bytes),
                    Ok(Frame::Failed(why)) => return Ok((output, why)),
                    Ok(Frame::Exit(_)) => return Ok((output, String::new())),
                    Ok(_) => {}
                    Err(ChannelError::Store(error)) => return Err(error),
                    Err(_) => std::future::pending().await,
                }
            }
        };
        tokio::time::timeout(limit, reading).await.ok().transpose()
    }
}

impl Drop for NodeAnswer {
    fn drop(&mut self) {
        let Some(mut channel) = self.channel.take() else { return };
        let mut delete = cmd("DEL");
        delete.arg(keys::channel_record(&self.id)).arg(keys::channel_output(&self.id));
        if self.has_ended {
            delete.arg(keys::channel_input(&self.id));
        }
        let (store, has_ended) = (self.store.clone(), self.has_ended);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            if !has_ended {
                // Otherwise the worker notices only by this side's silence.
                let finished = channel.writer.finish(Frame::Closed);
                let _best_effort = tokio::time::timeout(LEAVE_TIMEOUT, finished).await;
            }
            drop(channel);
            drop(store.link.query::<()>(&delete).await);
        });
    }
}
