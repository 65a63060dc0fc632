//! Limits logs to the rate of their readers, this node and Redis, which carries heartbeats too.

use bytes::Bytes;
use daemon::token_bucket::TokenBucket;
use model::stream::channel::Frame;
use parking_lot::Mutex;
use store::{ChannelError, ChannelWriter};
use tokio::time::Instant;

/// Concurrent log requests, which share the node's write rate.
pub(crate) const MAX_READERS: usize = 128;
pub(crate) const BYTES_PER_SECOND: f64 = 4.0 * 1_048_576.0;

pub(crate) struct LogWriter<'a> {
    pub(crate) writer: &'a mut ChannelWriter,
    pub(crate) throttle: &'a Mutex<TokenBucket>,
}

impl LogWriter<'_> {
    pub(crate) async fn write(&mut self, piece: Bytes) -> Result<(), ChannelError> {
        let bytes = piece.len() as u64;
        let pause = self.throttle.lock().take(bytes, Instant::now());
        tokio::time::sleep(pause).await;
        self.writer.send_data(piece, Frame::Output).await
    }
}
