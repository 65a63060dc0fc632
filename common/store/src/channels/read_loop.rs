//! Receives the frames of the other side.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::streams::{StreamId, StreamReadReply};
use redis::{FromRedisValue, cmd};
use tokio::sync::mpsc;

use super::error::ChannelError;
use super::flow::Flow;
use super::limits::PEER_TIMEOUT;
use super::write_loop::FIELD;
use crate::StoreError;
use crate::reply::corrupt;
use model::stream::channel::Frame;
use redis_link::{DedicatedConnection, Link};

const BLOCK: Duration = Duration::from_secs(2);
/// Interval of polls while frames arrive,
const MIN_POLL: Duration = Duration::from_millis(100);
/// and while none do.
const MAX_POLL: Duration = Duration::from_millis(400);
const COUNT: usize = 64;
const RETRY_PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Source {
    pub(super) link: Link,
    pub(super) key: String,
    pub(super) is_interactive: bool,
}

pub(super) async fn run(
    source: Source,
    flow: Arc<Flow>,
    frames: mpsc::UnboundedSender<Result<Frame, ChannelError>>,
) {
    loop {
        let error = receive(&source, &flow, &frames).await;
        let can_retry = match &error {
            ChannelError::Store(error) => error.is_transient() && flow.silence() < PEER_TIMEOUT,
            _ => false,
        };
        if !can_retry {
            flow.fail(error.clone());
            drop(frames.send(Err(error)));
            return;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// After an error the loop resumes after the last entry.
async fn receive(
    source: &Source,
    flow: &Flow,
    frames: &mpsc::UnboundedSender<Result<Frame, ChannelError>>,
) -> ChannelError {
    let mut connection = match source.connect().await {
        Ok(connection) => connection,
        Err(error) => return error.into(),
    };
    let mut pause = MIN_POLL;
    loop {
        let entries = match source.read(connection.as_mut(), flow.last_entry()).await {
            Ok(entries) => entries,
            Err(error) => return error.into(),
        };
        pause = if entries.is_empty() { (pause * 5 / 4).min(MAX_POLL) } else { MIN_POLL };
        if entries.is_empty() && flow.silence() > PEER_TIMEOUT {
            return ChannelError::PeerGone;
        }
        for entry in entries {
            match accept(entry, flow) {
                Ok(None) => {}
                Ok(Some(frame)) => {
                    if frames.send(Ok(frame)).is_err() {
                        return ChannelError::Closed;
                    }
                }
                Err(error) => return error,
            }
        }
        if connection.is_none() {
            tokio::time::sleep(pause).await;
        }
    }
}

impl Source {
    async fn connect(&self) -> Result<Option<DedicatedConnection>, StoreError> {
        if !self.is_interactive {
            return Ok(None);
        }
        self.link.dedicated(BLOCK + Duration::from_secs(5)).await.map(Some)
    }

    /// Waits for entries only on a connection of its own.
    async fn read(
        &self,
        connection: Option<&mut DedicatedConnection>,
        last: u64,
    ) -> Result<Vec<StreamId>, StoreError> {
        let mut read = cmd("XREAD");
        read.arg("COUNT").arg(COUNT);
        if connection.is_some() {
            read.arg("BLOCK").arg(BLOCK.as_millis() as u64);
        }
        read.arg("STREAMS").arg(&self.key).arg(format!("{last}-0"));
        let reply: Option<StreamReadReply> = match connection {
            Some(connection) => connection.query(&read).await?,
            None => self.link.query(&read).await?,
        };
        Ok(reply.into_iter().flat_map(|reply| reply.keys).flat_map(|stream| stream.ids).collect())
    }
}

fn accept(mut entry: StreamId, flow: &Flow) -> Result<Option<Frame>, ChannelError> {
    let malformed = || corrupt("reading a session", "an entry of another program");
    let number = entry.id.split('-').next().and_then(|number| number.parse().ok()).ok_or_else(malformed)?;
    let value = entry.map.remove(FIELD).ok_or_else(malformed)?;
    let bytes = Vec::<u8>::from_redis_value(value).map_err(|_| malformed())?;
    let frame = Frame::decode(&Bytes::from(bytes))?;
    flow.record_received(number, frame.cost())?;
    match frame {
        Frame::Read(bytes) => {
            flow.record_peer_read(bytes);
            Ok(None)
        }
        Frame::Unknown(_) => {
            flow.record_read(frame.cost());
            Ok(None)
        }
        frame => Ok(Some(frame)),
    }
}
