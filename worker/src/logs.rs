//! Logs on demand: a reader leaves a request in Redis, and this worker copies the container's output to a
//! stream there for as long as it is read.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use common::store::{LogChunk, LogRequest, StoreError};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::time::Instant;

use crate::context::SessionContext;
use crate::find_container::container_of;
use crate::log_throttle::{LogThrottle, MAX_READERS};
use crate::runtime::RuntimeError;

/// The largest piece that is written at once, in bytes.
const MAX_CHUNK: usize = 16 * 1024;
/// Output waits this long for more of it.
const GATHER_TIME: Duration = Duration::from_millis(50);
/// The worker waits for its reader while this number of chunks is unread,
const MAX_UNREAD: usize = 200;
/// looks again at this interval,
const READER_POLL: Duration = Duration::from_millis(50);
/// and goes on after this long.
const MAX_READER_WAIT: Duration = Duration::from_secs(20);
/// After this long without output Redis is asked whether the stream is still read.
const READER_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Takes the waiting requests and answers each in the background.
pub(crate) fn serve(context: &Arc<SessionContext>) {
    let task_context = context.clone();
    context.tasks.spawn(async move {
        match task_context.worker.store.take_log_requests(&task_context.worker.node).await {
            Ok(requests) => requests.into_iter().for_each(|request| answer(&task_context, request)),
            // The reader asks again.
            Err(error) => tracing::debug!(%error, "log requests could not be read"),
        }
    });
}

fn answer(context: &Arc<SessionContext>, request: LogRequest) {
    let task_context = context.clone();
    context.tasks.spawn(async move {
        tokio::select! {
            () = task_context.tasks.stopping().cancelled() => {}
            result = write(&task_context, &request) => {
                if let Err(error) = result {
                    tracing::debug!(pod = %request.pod, %error, "the answer to a log request ended early");
                }
            }
        }
    });
}

/// Writes the output, and then why it ended, unless the stream is not read any more.
async fn write(context: &SessionContext, request: &LogRequest) -> Result<(), StoreError> {
    let permit = context.log_permits.try_acquire();
    let opened = match permit {
        Ok(_) => open(context, request).await.map_err(|error| error.to_string()),
        Err(_) => Err(format!(
            "{} answers {MAX_READERS} log requests already; try again when one of them has ended",
            context.worker.node
        )),
    };
    let end = match opened {
        Ok(stream) => match copy(context, request, stream).await? {
            Some(end) => end,
            None => return Ok(()),
        },
        Err(reason) => reason,
    };
    context.worker.store.write_log(&request.id, &LogChunk::End(end)).await.map(drop)
}

async fn open(
    context: &SessionContext,
    request: &LogRequest,
) -> Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError> {
    let container = container_of(context, &request.pod, request.container.as_ref()).await?;
    context.worker.runtime.logs(&container.handle, request.tail, request.follow).await
}

/// Copies the output to Redis. Returns why it ended (empty if the container ended), or `None` if the stream
/// is not read any more.
async fn copy(
    context: &SessionContext,
    request: &LogRequest,
    mut stream: BoxStream<'static, Result<Bytes, RuntimeError>>,
) -> Result<Option<String>, StoreError> {
    let store = &context.worker.store;
    let mut gathered = BytesMut::new();
    let mut answer =
        Answer { context, request, throttle: LogThrottle::new(), total: 0, waits_for_reader: true };
    let mut flush_at: Option<Instant> = None;
    let end = loop {
        let wake = flush_at.unwrap_or_else(|| Instant::now() + READER_CHECK_INTERVAL);
        tokio::select! {
            output = stream.next() => match output {
                Some(Ok(bytes)) => gathered.extend_from_slice(&bytes),
                Some(Err(error)) => break error.to_string(),
                None => break String::new(),
            },
            () = tokio::time::sleep_until(wake) => {
                if gathered.is_empty() {
                    if !store.log_is_wanted(&request.id).await? {
                        return Ok(None);
                    }
                } else if !answer.flush(&mut gathered).await? {
                    return Ok(None);
                }
                flush_at = None;
            }
        }
        if gathered.len() >= MAX_CHUNK {
            if !answer.flush(&mut gathered).await? {
                return Ok(None);
            }
            flush_at = None;
        } else if !gathered.is_empty() && flush_at.is_none() {
            flush_at = Some(Instant::now() + GATHER_TIME);
        }
    };
    let is_read = answer.flush(&mut gathered).await?;
    Ok(is_read.then_some(end))
}

/// The answer to one request, as far as it is written.
struct Answer<'a> {
    context: &'a SessionContext,
    request: &'a LogRequest,
    throttle: LogThrottle,
    /// How many bytes of output were written.
    total: u64,
    /// False once the reader has kept us waiting for too long: an API of an earlier version does not remove
    /// what it has read. Then the oldest chunks are dropped, and the reader says so.
    waits_for_reader: bool,
}

impl Answer<'_> {
    /// Writes everything gathered, as fast as it may be. Returns false if the stream is not read any more.
    async fn flush(&mut self, gathered: &mut BytesMut) -> Result<bool, StoreError> {
        let store = &self.context.worker.store;
        while !gathered.is_empty() {
            let piece = gathered.split_to(gathered.len().min(MAX_CHUNK)).freeze();
            tokio::time::sleep(self.throttle.take(piece.len(), Instant::now())).await;
            if !self.wait_for_reader().await? {
                return Ok(false);
            }
            self.total += piece.len() as u64;
            if !store.write_log_output(&self.request.id, &piece, self.total).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits while much is unread. Returns false if the stream is not read any more.
    async fn wait_for_reader(&mut self) -> Result<bool, StoreError> {
        let begun = Instant::now();
        while self.waits_for_reader {
            match self.context.worker.store.unread_log_chunks(&self.request.id).await? {
                None => return Ok(false),
                Some(unread) if unread < MAX_UNREAD => break,
                Some(_) => self.waits_for_reader = begun.elapsed() < MAX_READER_WAIT,
            }
            tokio::time::sleep(READER_POLL).await;
        }
        Ok(true)
    }
}
