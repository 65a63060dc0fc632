//! Log lines of several pods of this node in one answer, merged by time.
//!
//! [`sources`] opens the logs of containers, including those that start later; [`engine::kept_logs`] has the
//! logs of removed containers.

mod sources;

use std::sync::Arc;
use std::time::{Duration, Instant as StdInstant};

use bytes::{Bytes, BytesMut};
use model::stream::log_line::LogLine;
use store::{LinesRequest, LogChunk, StoreError};
use tokio::time::Instant;

use self::sources::{LineSources, SourceEvent};
use crate::answer::log_answer::LogAnswer;
use crate::answer::log_throttle::MAX_READERS;
use crate::answer::log_throttle::too_many_readers;
use crate::session::context::SessionContext;

/// Lines are written when there is this much of them, in bytes,
const MAX_CHUNK: usize = 16 * 1024;
/// or after this long.
const GATHER_TIME: Duration = Duration::from_millis(50);
/// With many readers lines are gathered for longer: each chunk costs Redis the same, whatever its size.
const MAX_GATHER_TIME: Duration = Duration::from_millis(800);
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// After this long without lines an empty chunk signals that this worker is alive.
const SIGN_INTERVAL: Duration = Duration::from_secs(5);

pub(crate) fn answer(context: &Arc<SessionContext>, request: LinesRequest) {
    let task_context = context.clone();
    context.tasks.spawn(async move {
        tokio::select! {
            () = task_context.tasks.stopping().cancelled() => {}
            result = write(&task_context, &request) => {
                if let Err(error) = result {
                    tracing::debug!(%error, "the answer to a request for lines ended early");
                }
            }
        }
    });
}

async fn write(context: &SessionContext, request: &LinesRequest) -> Result<(), StoreError> {
    let permit = context.log_permits.try_acquire();
    let end = match permit {
        Ok(_) => match copy(context, request).await? {
            true => String::new(),
            false => return Ok(()),
        },
        Err(_) => too_many_readers(&context.worker.node),
    };
    context.worker.store.write_log(&request.id, &LogChunk::End(end)).await.map(drop)
}

async fn copy(context: &SessionContext, request: &LinesRequest) -> Result<bool, StoreError> {
    let mut writer = LineWriter {
        answer: LogAnswer::new(&context.worker.store, &request.id, &context.log_throttle),
        context,
        request,
        gathered: BytesMut::new(),
        flush_at: None,
        sign_at: Instant::now() + SIGN_INTERVAL,
    };
    // A hanging engine answers late: meanwhile the reader learns that this worker is alive.
    let Some(mut sources) = writer.signing(LineSources::open(context, request)).await? else {
        return Ok(false);
    };
    let mut refresh_at = Instant::now() + REFRESH_INTERVAL;
    loop {
        while let Some(line) = sources.merge.pop(StdInstant::now()) {
            if !writer.add(&line).await? {
                return Ok(false);
            }
        }
        sources.take_marks().iter().for_each(|mark| writer.add_mark(mark));
        if sources.is_done() {
            return writer.flush().await;
        }
        if !writer.flush_if_due().await? {
            return Ok(false);
        }
        if request.follow && Instant::now() >= refresh_at {
            refresh_at = Instant::now() + REFRESH_INTERVAL;
            if writer.signing(sources.refresh()).await?.is_none() {
                return Ok(false);
            }
        }
        let due = [writer.flush_at, sources.merge.due_at().map(Instant::from_std), Some(writer.sign_at)];
        let wake = due.into_iter().flatten().chain(request.follow.then_some(refresh_at)).min();
        tokio::select! {
            event = sources.next() => match event {
                SourceEvent::Lines => {}
                SourceEvent::Mark(mark) => writer.add_mark(&mark),
            },
            () = tokio::time::sleep_until(wake.unwrap_or(refresh_at)) => {}
        }
    }
}

struct LineWriter<'a> {
    context: &'a SessionContext,
    request: &'a LinesRequest,
    answer: LogAnswer<'a>,
    gathered: BytesMut,
    flush_at: Option<Instant>,
    sign_at: Instant,
}

impl LineWriter<'_> {
    async fn signing<T>(&mut self, work: impl Future<Output = T>) -> Result<Option<T>, StoreError> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(Some(done)),
                () = tokio::time::sleep_until(self.sign_at) => {
                    self.sign_at = Instant::now() + SIGN_INTERVAL;
                    if !self.answer.write(&Bytes::new()).await? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    async fn add(&mut self, line: &LogLine) -> Result<bool, StoreError> {
        if !is_wanted(self.request, line) {
            return Ok(true);
        }
        line.encode(&mut self.gathered);
        self.begin_gathering();
        if self.gathered.len() >= MAX_CHUNK { self.flush().await } else { Ok(true) }
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

    async fn flush_if_due(&mut self) -> Result<bool, StoreError> {
        let now = Instant::now();
        if self.flush_at.is_some_and(|due| now >= due) {
            return self.flush().await;
        }
        if now >= self.sign_at {
            self.sign_at = now + SIGN_INTERVAL;
            return self.answer.write(&Bytes::new()).await;
        }
        Ok(true)
    }

    /// Writes all gathered lines. A chunk has whole lines, so that a skipped chunk cuts none.
    async fn flush(&mut self) -> Result<bool, StoreError> {
        self.flush_at = None;
        if self.gathered.is_empty() {
            return Ok(true);
        }
        self.sign_at = Instant::now() + SIGN_INTERVAL;
        self.answer.write(&self.gathered.split().freeze()).await
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
