//! Logs on demand: a reader leaves a request in Redis, and this worker writes the container's output to a stream there
//! for as long as somebody reads it.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use common::ids::PodId;
use common::store::{LogChunk, LogRequest, StoreError};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::time::Instant;

use crate::life::Life;
use crate::runtime::{Container, ContainerState, RuntimeError};

/// The largest piece that is written at once.
const CHUNK: usize = 16 * 1024;
/// Output waits so long for more of it.
const GATHER: Duration = Duration::from_millis(50);
/// After so long without output it is asked whether anybody still reads.
const QUIET: Duration = Duration::from_secs(5);

/// Takes the requests that wait and answers each beside everything else.
pub(crate) fn serve(life: &Arc<Life>) {
    let taking = life.clone();
    life.spawn(async move {
        match taking.worker.store.take_log_requests(&taking.worker.node).await {
            Ok(requests) => requests.into_iter().for_each(|request| answer(&taking, request)),
            // The reader asks again.
            Err(error) => tracing::debug!(%error, "log requests could not be read"),
        }
    });
}

fn answer(life: &Arc<Life>, request: LogRequest) {
    let answering = life.clone();
    life.spawn(async move {
        tokio::select! {
            () = answering.quit.cancelled() => {}
            result = write(&answering, &request) => {
                if let Err(error) = result {
                    tracing::debug!(pod = %request.pod, %error, "the answer to a log request broke off");
                }
            }
        }
    });
}

async fn write(life: &Life, request: &LogRequest) -> Result<(), StoreError> {
    let end = match open(life, request).await {
        Ok(stream) => match pump(life, request, stream).await? {
            Some(end) => end,
            None => return Ok(()),
        },
        Err(error) => error.to_string(),
    };
    life.worker.store.write_log(&request.id, &LogChunk::End(end)).await.map(drop)
}

async fn open(
    life: &Life,
    request: &LogRequest,
) -> Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError> {
    let containers = life.worker.runtime.list(&life.worker.node).await?;
    let Some(container) = best(containers, life, &request.pod) else {
        let node = &life.worker.node;
        let words = format!("pod {} has none on {node}; it has not been started, or is gone", request.pod);
        return Err(RuntimeError::NotFound(words));
    };
    life.worker.runtime.logs(&container.handle, request.tail, request.follow).await
}

/// The pod's present container; else one that runs; else any.
fn best(containers: Vec<Container>, life: &Life, pod: &PodId) -> Option<Container> {
    let present = life.table.get(pod).map(|held| held.assignment);
    containers.into_iter().filter(|container| container.pod == *pod).max_by_key(|container| {
        (Some(&container.assignment) == present.as_ref(), container.state == ContainerState::Running)
    })
}

/// Writes what comes. Gives the words for the end, or none when nobody reads any more.
async fn pump(
    life: &Life,
    request: &LogRequest,
    mut stream: BoxStream<'static, Result<Bytes, RuntimeError>>,
) -> Result<Option<String>, StoreError> {
    let store = &life.worker.store;
    let mut gathered = BytesMut::new();
    let mut flush_at: Option<Instant> = None;
    let end = loop {
        let wake = flush_at.unwrap_or_else(|| Instant::now() + QUIET);
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
                } else if !flush(life, request, &mut gathered).await? {
                    return Ok(None);
                }
                flush_at = None;
            }
        }
        if gathered.len() >= CHUNK {
            if !flush(life, request, &mut gathered).await? {
                return Ok(None);
            }
            flush_at = None;
        } else if !gathered.is_empty() && flush_at.is_none() {
            flush_at = Some(Instant::now() + GATHER);
        }
    };
    let wanted = flush(life, request, &mut gathered).await?;
    Ok(wanted.then_some(end))
}

/// Writes all that was gathered; false when nobody reads any more.
async fn flush(life: &Life, request: &LogRequest, gathered: &mut BytesMut) -> Result<bool, StoreError> {
    while !gathered.is_empty() {
        let piece = gathered.split_to(gathered.len().min(CHUNK)).freeze();
        if !life.worker.store.write_log(&request.id, &LogChunk::Output(piece)).await? {
            return Ok(false);
        }
    }
    Ok(true)
}
