//! Logs on demand: a reader leaves a request in Redis, and this worker copies the container's output to a
//! stream there until the reader is gone.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use engine::RuntimeError;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use store::{AnyLogRequest, LogChunk, LogRequest, StoreError};
use tokio::time::Instant;

use crate::answer::lines;
use crate::answer::log_answer::LogAnswer;
use crate::answer::log_throttle::too_many_readers;
use crate::answer::login_check;
use crate::answer::pull_ahead;
use crate::answer::requested_container::container_of;
use crate::node::garbage;
use crate::session::context::SessionContext;

const MAX_CHUNK: usize = 16 * 1024;
const GATHER_TIME: Duration = Duration::from_millis(50);
/// After this long without output, the worker checks in Redis that the reader is there.
const READER_CHECK_INTERVAL: Duration = Duration::from_secs(5);

pub(crate) fn serve(context: &Arc<SessionContext>) {
    let task_context = context.clone();
    context.tasks.spawn(async move {
        match task_context.worker.store.take_log_requests(&task_context.worker.node).await {
            Ok(requests) => requests.into_iter().for_each(|request| match request {
                AnyLogRequest::Output(request) => answer(&task_context, request),
                AnyLogRequest::Garbage(request) => garbage::answer::answer(&task_context, request),
                AnyLogRequest::LoginCheck(request) => login_check::answer(&task_context, request),
                AnyLogRequest::Prepare(request) => pull_ahead::answer(&task_context, request),
                AnyLogRequest::Lines(request) => lines::answer(&task_context, request),
            }),
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

async fn write(context: &SessionContext, request: &LogRequest) -> Result<(), StoreError> {
    let permit = context.log_permits.try_acquire();
    let opened = match permit {
        Ok(_) => open(context, request).await.map_err(|error| error.to_string()),
        Err(_) => Err(too_many_readers(&context.worker.node)),
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

/// Copies the output to Redis. Returns why it ended (empty if the container ended), or `None` if the reader
/// is gone.
async fn copy(
    context: &SessionContext,
    request: &LogRequest,
    mut stream: BoxStream<'static, Result<Bytes, RuntimeError>>,
) -> Result<Option<String>, StoreError> {
    let store = &context.worker.store;
    let mut gathered = BytesMut::new();
    let mut answer = LogAnswer::new(store, &request.id, &context.log_throttle);
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
                } else if !flush(&mut answer, &mut gathered).await? {
                    return Ok(None);
                }
                flush_at = None;
            }
        }
        if gathered.len() >= MAX_CHUNK {
            if !flush(&mut answer, &mut gathered).await? {
                return Ok(None);
            }
            flush_at = None;
        } else if !gathered.is_empty() && flush_at.is_none() {
            flush_at = Some(Instant::now() + GATHER_TIME);
        }
    };
    let is_read = flush(&mut answer, &mut gathered).await?;
    Ok(is_read.then_some(end))
}

async fn flush(answer: &mut LogAnswer<'_>, gathered: &mut BytesMut) -> Result<bool, StoreError> {
    while !gathered.is_empty() {
        let piece = gathered.split_to(gathered.len().min(MAX_CHUNK)).freeze();
        if !answer.write(&piece).await? {
            return Ok(false);
        }
    }
    Ok(true)
}
