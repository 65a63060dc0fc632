//! Server-sent events, with a limit on their size.

use eventsource_stream::{EventStreamError, Eventsource};
use futures_util::{Stream, StreamExt};

/// A broken server cannot fill the memory.
const MAX_EVENT_BYTES: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SseError<E> {
    #[error("an event is longer than 1 MiB")]
    TooLong,
    #[error("not an event stream: {0}")]
    Malformed(String),
    #[error("{0}")]
    Body(E),
}

/// Skips comments (keep-alives) and events without data.
pub(crate) fn event_data<B, E>(
    body: impl Stream<Item = Result<B, E>>,
) -> impl Stream<Item = Result<String, SseError<E>>>
where
    B: AsRef<[u8]>,
    E: std::fmt::Display,
{
    let mut size = EventSize::default();
    let limited = body.map(move |chunk| {
        let chunk = chunk.map_err(SseError::Body)?;
        size.add(chunk.as_ref())?;
        Ok(chunk)
    });
    limited.eventsource().map(|event| match event {
        Ok(event) => Ok(event.data),
        Err(EventStreamError::Transport(error)) => Err(error),
        Err(error) => Err(SseError::Malformed(error.to_string())),
    })
}

#[derive(Default)]
struct EventSize {
    event: usize,
    line: usize,
}

impl EventSize {
    fn add<E>(&mut self, bytes: &[u8]) -> Result<(), SseError<E>> {
        for byte in bytes {
            match byte {
                b'\n' if self.line == 0 => self.event = 0,
                b'\n' => self.line = 0,
                b'\r' => {}
                _ => {
                    self.line += 1;
                    self.event += 1;
                }
            }
            if self.event > MAX_EVENT_BYTES {
                return Err(SseError::TooLong);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    use std::convert::Infallible;

    use futures_util::{TryStreamExt, stream};

    const STREAM: &[u8] = b": keep-alive\n\n\
        id: 1-0\nevent: Started\ndata: {\"a\":\"\xc3\xbc\"}\n\n\
        data: x\r\ndata:y\r\n\r\n\
        id: 2\n\n\
        data: cut";

    async fn parse(bytes: &[u8], chunk_size: usize) -> Result<Vec<String>, SseError<Infallible>> {
        event_data(stream::iter(bytes.chunks(chunk_size).map(Ok))).try_collect().await
    }

    #[tokio::test]
    async fn events_do_not_depend_on_the_chunks_they_arrive_in() {
        let expected = ["{\"a\":\"ü\"}", "x\ny"];
        for size in 1..STREAM.len() {
            assert_eq!(parse(STREAM, size).await.unwrap(), expected, "chunks of {size} bytes");
        }
    }

    #[tokio::test]
    async fn an_event_without_an_end_is_refused() {
        let mut line = b"data: ".to_vec();
        line.resize(MAX_EVENT_BYTES + 1, b'x');
        assert!(matches!(parse(&line, 4096).await, Err(SseError::TooLong)));
        let lines = format!("data: {}\n", "x".repeat(1000)).repeat(2000);
        assert!(matches!(parse(lines.as_bytes(), 4096).await, Err(SseError::TooLong)));
    }

    #[tokio::test]
    async fn the_limit_is_for_one_event_and_not_for_the_stream() {
        let events = format!(": keep-alive\n\ndata: {}\n\n", "x".repeat(1000)).repeat(2000);
        assert_eq!(parse(events.as_bytes(), 4096).await.unwrap().len(), 2000);
    }
}
