//! Requests to connect to pods, and the two halves of one side of a channel.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use daemon::token_bucket::TokenBucket;
use redis::cmd;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::error::ChannelError;
use super::flow::Flow;
use super::limits::{EXPIRE_SECONDS, MAX_REQUESTS, QUEUE_LENGTH};
use super::read_loop;
use super::request::{ConnectRequest, NodeQuestion, NodeRequest};
use super::write_loop::{self, OutgoingFrame};
use crate::reply::{unexpected, word};
use crate::scripts::{channel_close, channel_open};
use crate::{Store, StoreError, keys};
use model::ids::{NodeName, PodId, RequestId};
use model::stream::channel::{Frame, pieces};

/// Bytes per second, and the burst: Redis also carries heartbeats.
const OF_CONNECTION: f64 = 16.0 * 1_048_576.0;
const OF_ANSWER: f64 = 1_048_576.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelOutcome {
    Requested,
    PodGone,
    Busy,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum ChannelSide {
    Client,
    Worker,
}

/// Its tasks end when both halves are dropped.
pub struct Channel {
    pub writer: ChannelWriter,
    pub reader: ChannelReader,
}

pub struct ChannelWriter {
    flow: Arc<Flow>,
    queue: mpsc::Sender<OutgoingFrame>,
    throttle: TokenBucket,
    _tasks: Arc<ChannelTasks>,
}

pub struct ChannelReader {
    flow: Arc<Flow>,
    frames: mpsc::UnboundedReceiver<Result<Frame, ChannelError>>,
    _tasks: Arc<ChannelTasks>,
}

struct ChannelTasks {
    _read: AbortOnDropHandle<()>,
    _write: AbortOnDropHandle<()>,
}

impl Store {
    /// Records an event, unless `is_quiet`: then the request is one of many.
    pub async fn request_channel(
        &self,
        node: &NodeName,
        id: &RequestId,
        connect: &ConnectRequest,
        message: &str,
        is_quiet: bool,
    ) -> Result<ChannelOutcome, StoreError> {
        let what = "opening a channel";
        let request = NodeRequest { id: id.clone(), question: NodeQuestion::Connect(connect.clone()) };
        let call = channel_open::Head {
            pod_key: keys::pod(&connect.pod),
            node_key: keys::node(node),
            requests: keys::requests(node),
            record: keys::channel_record(id),
            uuid: &connect.pod,
            node,
            request: crate::json::to_json(&request),
            word: connect.purpose.event_word(),
            message,
            is_quiet,
            expire_seconds: EXPIRE_SECONDS,
            max_requests: MAX_REQUESTS,
        }
        .call();
        match word(what, self.link.script(&call).await?)?.as_str() {
            "OK" => Ok(ChannelOutcome::Requested),
            "GONE" => Ok(ChannelOutcome::PodGone),
            "BUSY" => Ok(ChannelOutcome::Busy),
            other => Err(unexpected(what, other)),
        }
    }

    pub fn client_channel(&self, id: &RequestId) -> Channel {
        self.channel(id, ChannelSide::Client, true)
    }

    /// `None` if the client has left.
    pub async fn accept_channel(&self, request: &NodeRequest) -> Result<Option<Channel>, StoreError> {
        let is_open: bool = self.link.query(cmd("EXISTS").arg(keys::channel_record(&request.id))).await?;
        let is_interactive = matches!(request.question, NodeQuestion::Connect(_));
        Ok(is_open.then(|| self.channel(&request.id, ChannelSide::Worker, is_interactive)))
    }

    /// Called after both halves were dropped. The first side records the event.
    pub async fn close_channel(
        &self,
        id: &RequestId,
        pod: &PodId,
        of_worker: bool,
        message: &str,
    ) -> Result<(), StoreError> {
        let unread = if of_worker { keys::channel_input(id) } else { keys::channel_output(id) };
        let call =
            channel_close::Head { record: keys::channel_record(id), unread, uuid: pod, message }.call();
        self.link.script(&call).await.map(drop)
    }

    /// An interactive channel has a connection of its own. The others poll over the shared one: a client may
    /// read the logs of hundreds of nodes.
    pub(super) fn channel(&self, id: &RequestId, side: ChannelSide, is_interactive: bool) -> Channel {
        let (input, output) = (keys::channel_input(id), keys::channel_output(id));
        let (read_key, write_key) = match side {
            ChannelSide::Client => (output, input),
            ChannelSide::Worker => (input, output),
        };
        let flow = Arc::new(Flow::new());
        let (queue, outgoing) = mpsc::channel(QUEUE_LENGTH);
        let (incoming, frames) = mpsc::unbounded_channel();
        let source = read_loop::Source { link: self.link.clone(), key: read_key.clone(), is_interactive };
        let reading = read_loop::run(source, flow.clone(), incoming);
        let keys = write_loop::Keys { write: write_key, read: read_key, record: keys::channel_record(id) };
        let writing = write_loop::run(self.link.clone(), keys, flow.clone(), outgoing);
        let tasks = Arc::new(ChannelTasks {
            _read: AbortOnDropHandle::new(tokio::spawn(reading)),
            _write: AbortOnDropHandle::new(tokio::spawn(writing)),
        });
        Channel {
            writer: ChannelWriter {
                flow: flow.clone(),
                queue,
                throttle: TokenBucket::new(if is_interactive { OF_CONNECTION } else { OF_ANSWER }),
                _tasks: tasks.clone(),
            },
            reader: ChannelReader { flow, frames, _tasks: tasks },
        }
    }
}

impl ChannelWriter {
    /// Waits while too many bytes are unread.
    ///
    /// # Cancel safety
    /// A dropped call sends the whole frame or nothing.
    pub async fn send(&mut self, frame: Frame) -> Result<(), ChannelError> {
        tokio::time::sleep(self.throttle.take(frame.cost(), Instant::now())).await;
        self.flow.reserve(frame.cost()).await?;
        let sent = self.queue.send(OutgoingFrame { frame, done: None }).await;
        sent.map_err(|_| self.flow.failure())
    }

    pub async fn send_data(
        &mut self,
        data: Bytes,
        frame: impl Fn(Bytes) -> Frame,
    ) -> Result<(), ChannelError> {
        for piece in pieces(data) {
            self.send(frame(piece)).await?;
        }
        Ok(())
    }

    /// Ignores the limit of unread bytes. Returns once Redis has all frames.
    pub async fn finish(&mut self, frame: Frame) -> Result<(), ChannelError> {
        let (done, is_done) = oneshot::channel();
        let sent = self.queue.send(OutgoingFrame { frame, done: Some(done) }).await;
        sent.map_err(|_| self.flow.failure())?;
        is_done.await.map_err(|_| self.flow.failure())
    }
}

impl ChannelReader {
    pub async fn answered(&self) {
        self.flow.answered().await;
    }

    pub(super) fn silence(&self) -> Duration {
        self.flow.silence()
    }

    /// A frame counts as read once its receipt is dropped.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> Result<(Frame, Receipt), ChannelError> {
        match self.frames.recv().await {
            Some(Ok(frame)) => {
                let receipt = Receipt { flow: self.flow.clone(), cost: frame.cost() };
                Ok((frame, receipt))
            }
            Some(Err(error)) => Err(error),
            None => Err(self.flow.failure()),
        }
    }
}

/// Dropping it lets the other side send more.
pub struct Receipt {
    flow: Arc<Flow>,
    cost: u64,
}

impl Drop for Receipt {
    fn drop(&mut self) {
        self.flow.record_read(self.cost);
    }
}
