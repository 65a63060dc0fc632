//! The raw output of one container.

use std::time::Duration;

use bytes::BytesMut;
use futures_util::StreamExt;
use model::stream::channel::Frame;
use store::{ChannelError, LogRequest};
use tokio::time::{Instant, timeout_at};

use crate::answer::ends::ChannelEnd;
use crate::answer::log_writer::LogWriter;
use crate::answer::requested_container::container_of;
use crate::session::context::SessionContext;

/// Output is written when there is this much of it, in bytes,
const MAX_CHUNK_BYTES: usize = 16 * 1024;
/// or after this long.
const GATHER_TIME: Duration = Duration::from_millis(50);

pub(super) async fn copy(
    context: &SessionContext,
    request: &LogRequest,
    mut writer: LogWriter<'_>,
) -> Result<ChannelEnd, ChannelError> {
    let opening = async {
        let container = container_of(context, &request.pod, request.container.as_ref()).await?;
        context.worker.runtime.logs(&container.handle, request.tail, request.follow).await
    };
    let mut output = match opening.await {
        Ok(output) => output,
        Err(error) => return Ok(Some(Frame::Failed(error.to_string()))),
    };
    let mut gathered = BytesMut::new();
    loop {
        let mut flush_at = None;
        let end = loop {
            let part = match flush_at {
                None => output.next().await,
                Some(at) => match timeout_at(at, output.next()).await {
                    Ok(part) => part,
                    Err(_) => break None,
                },
            };
            match part {
                Some(Ok(bytes)) => gathered.extend_from_slice(&bytes),
                Some(Err(error)) => break Some(Frame::Failed(error.to_string())),
                None => break Some(Frame::Exit(0)),
            }
            if gathered.len() >= MAX_CHUNK_BYTES {
                break None;
            }
            flush_at.get_or_insert_with(|| Instant::now() + GATHER_TIME);
        };
        writer.write(gathered.split().freeze()).await?;
        if end.is_some() {
            return Ok(end);
        }
    }
}
