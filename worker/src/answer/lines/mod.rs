//! Log lines of several pods of this node in one answer, merged by time.

mod sources;

use std::time::{Duration, Instant as StdInstant};

use bytes::BytesMut;
use model::stream::channel::Frame;
use model::stream::log_line::LogLine;
use store::{ChannelError, LinesRequest};
use tokio::time::Instant;

use self::sources::{LineSources, SourceEvent};
use crate::answer::ends::ChannelEnd;
use crate::answer::log_writer::{LogWriter, MAX_READERS};
use crate::session::context::SessionContext;

/// Lines are written when there is this much of them, in bytes,
const MAX_CHUNK_BYTES: usize = 16 * 1024;
/// or after this long.
const GATHER_TIME: Duration = Duration::from_millis(50);
/// With many readers: each chunk costs Redis the same, whatever its size.
const MAX_GATHER_TIME: Duration = Duration::from_millis(800);
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn copy(
    context: &SessionContext,
    request: &LinesRequest,
    writer: LogWriter<'_>,
) -> Result<ChannelEnd, ChannelError> {
    let mut gatherer = LineGatherer { writer, context, request, gathered: BytesMut::new(), flush_at: None };
    let mut sources = LineSources::open(context, request).await;
    let mut refresh_at = Instant::now() + REFRESH_INTERVAL;
    loop {
        while let Some(line) = sources.merge.pop(StdInstant::now()) {
            gatherer.add(&line).await?;
        }
        sources.take_marks().iter().for_each(|mark| gatherer.add_mark(mark));
        if sources.is_done() {
            gatherer.flush().await?;
            return Ok(Some(Frame::Exit(0)));
        }
        if gatherer.flush_at.is_some_and(|due| Instant::now() >= due) {
            gatherer.flush().await?;
        }
        if request.follow && Instant::now() >= refresh_at {
            refresh_at = Instant::now() + REFRESH_INTERVAL;
            sources.refresh().await;
        }
        let due = [
            gatherer.flush_at,
            sources.merge.due_at().map(Instant::from_std),
            request.follow.then_some(refresh_at),
        ];
        let woken = async {
            match due.into_iter().flatten().min() {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = sources.next() => match event {
                SourceEvent::Lines => {}
                SourceEvent::Mark(mark) => gatherer.add_mark(&mark),
            },
            () = woken => {}
        }
    }
}

struct LineGatherer<'a> {
    writer: LogWriter<'a>,
    context: &'a SessionContext,
    request: &'a LinesRequest,
    gathered: BytesMut,
    flush_at: Option<Instant>,
}

impl LineGatherer<'_> {
    async fn add(&mut self, line: &LogLine) -> Result<(), ChannelError> {
        if !is_wanted(self.request, line) {
            return Ok(());
        }
        line.encode(&mut self.gathered);
        self.begin_gathering();
        if self.gathered.len() >= MAX_CHUNK_BYTES { self.flush().await } else { Ok(()) }
    }

    fn add_mark(&mut self, mark: &str) {
        self.gathered.extend_from_slice(format!("{mark}\n").as_bytes());
        self.begin_gathering();
    }

    fn begin_gathering(&mut self) {
        if self.flush_at.is_none() {
            let readers = MAX_READERS.saturating_sub(self.context.log_permits.available_permits());
            let wait = GATHER_TIME.mul_f64((readers as f64 / 8.0).max(1.0)).min(MAX_GATHER_TIME);
            self.flush_at = Some(Instant::now() + wait);
        }
    }

    async fn flush(&mut self) -> Result<(), ChannelError> {
        self.flush_at = None;
        self.writer.write(self.gathered.split().freeze()).await
    }
}

fn is_wanted(request: &LinesRequest, line: &LogLine) -> bool {
    request.after.is_none_or(|after| line.time > after)
        && request.until.is_none_or(|until| line.time < until)
        && request.grep.as_ref().is_none_or(|text| contains(&line.text, text.as_bytes()))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use bytes::Bytes;
    use model::ids::PodId;

    use super::*;

    #[test]
    fn only_lines_that_were_asked_for_are_sent() {
        let request = LinesRequest {
            after: Some(10),
            until: Some(20),
            grep: Some("err".to_owned()),
            ..LinesRequest::default()
        };
        let line = |time, text: &'static str| LogLine {
            time,
            pod: PodId::new("p").unwrap(),
            name: "web-0".to_owned(),
            container: None,
            text: Bytes::from_static(text.as_bytes()),
        };
        for (time, text, wanted) in
            [(11, "an error", true), (10, "an error", false), (20, "err", false), (15, "fine", false)]
        {
            assert_eq!(is_wanted(&request, &line(time, text)), wanted, "{time} {text}");
        }
        assert!(is_wanted(&LinesRequest::default(), &line(0, "")));
    }
}
