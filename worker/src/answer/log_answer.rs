//! The answer to one log request, written as fast as its reader, this node and Redis allow.

use std::time::Duration;

use bytes::Bytes;
use daemon::token_bucket::TokenBucket;
use parking_lot::Mutex;
use store::{Store, StoreError};
use tokio::time::Instant;

use crate::answer::log_throttle::throttle_of_one;

/// The worker waits for its reader while this many chunks are unread,
const MAX_UNREAD: usize = 200;
/// checks again at this interval,
const READER_POLL: Duration = Duration::from_millis(50);
/// and goes on after this long.
const MAX_READER_WAIT: Duration = Duration::from_secs(20);

pub(crate) struct LogAnswer<'a> {
    store: &'a Store,
    id: &'a str,
    shared: &'a Mutex<TokenBucket>,
    throttle: TokenBucket,
    total: u64,
    /// False once the reader kept us waiting for too long: an API of an earlier version does not remove
    /// chunks after reading. Then the oldest chunks are dropped, and the reader reports it.
    waits_for_reader: bool,
}

impl<'a> LogAnswer<'a> {
    pub(crate) fn new(store: &'a Store, id: &'a str, shared: &'a Mutex<TokenBucket>) -> Self {
        Self { store, id, shared, throttle: throttle_of_one(), total: 0, waits_for_reader: true }
    }

    pub(crate) async fn write(&mut self, piece: &Bytes) -> Result<bool, StoreError> {
        let (length, now) = (piece.len() as u64, Instant::now());
        let of_all = self.shared.lock().take(length, now);
        tokio::time::sleep(self.throttle.take(length, now).max(of_all)).await;
        if !self.wait_for_reader().await? {
            return Ok(false);
        }
        self.total += length;
        self.store.write_log_output(self.id, piece, self.total).await
    }

    async fn wait_for_reader(&mut self) -> Result<bool, StoreError> {
        let begun = Instant::now();
        while self.waits_for_reader {
            match self.store.unread_log_chunks(self.id).await? {
                None => return Ok(false),
                Some(unread) if unread < MAX_UNREAD => break,
                Some(_) => self.waits_for_reader = begun.elapsed() < MAX_READER_WAIT,
            }
            tokio::time::sleep(READER_POLL).await;
        }
        Ok(true)
    }
}
