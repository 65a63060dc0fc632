//! Checks a client's requests before the parser sees them, and ends slow connections.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use gate::shares::TakenPlace;
use gate::timer::Timer;
use hyper::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::client::frames::Frames;
use crate::client::framing::Scanner;
use crate::long_heads::{Surplus, Thinner};
use crate::scanner::{Ambiguous, FramingState};

const LOOKS_WHILE_IDLE: u32 = 4;

const REST_WITHIN: Duration = Duration::from_secs(10);

/// For the answer of an idle HTTP/2 client to GOAWAY.
const GOAWAY_WITHIN: Duration = Duration::from_secs(2);

const UNDECIDED: u8 = 0;
const UPGRADED: u8 = 1;
const NOT_UPGRADED: u8 = 2;

#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    active: AtomicUsize,
    upgrade: AtomicU8,
    waker: AtomicWaker,
    has_unread_body: AtomicBool,
    is_idle_for_too_long: AtomicBool,
    /// Unwritten answers of the service with a refusal status.
    refusals: AtomicUsize,
    pub(crate) surplus: Arc<Surplus>,
}

pub(crate) struct ActiveRequest {
    state: Arc<ConnectionState>,
    _place: Option<TakenPlace>,
}

impl ActiveRequest {
    /// The first active request uses the connection's place; each concurrent one takes another.
    pub(crate) fn begin(
        state: &Arc<ConnectionState>,
        enter: impl FnOnce() -> Option<TakenPlace>,
    ) -> Option<Self> {
        let is_first = state.active.fetch_add(1, Ordering::Relaxed) == 0;
        let mut active = Self { state: state.clone(), _place: None };
        if !is_first {
            active._place = Some(enter()?);
        }
        Some(active)
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.state.active.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConnectionState {
    pub(crate) fn decide_upgrade(&self, is_upgraded: bool) {
        self.upgrade.store(if is_upgraded { UPGRADED } else { NOT_UPGRADED }, Ordering::Release);
        self.waker.wake();
    }

    pub(crate) fn note_unread_body(&self) {
        self.has_unread_body.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_unread_body(&self) -> bool {
        self.has_unread_body.load(Ordering::Relaxed)
    }

    /// Set by a read of the HTTP/2 connection, which is to end by GOAWAY then.
    pub(crate) fn is_idle_for_too_long(&self) -> bool {
        self.is_idle_for_too_long.load(Ordering::Relaxed)
    }

    fn take_refusal(&self) -> bool {
        let taken = |refusals: usize| refusals.checked_sub(1);
        self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }

    pub(crate) fn note_answer(&self, status: StatusCode) {
        if is_refusal(status) {
            self.refusals.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The server itself refuses unreadable requests with these.
fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_REQUEST | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientTimeouts {
    pub(crate) head: Duration,
    pub(crate) idle: Duration,
}

pub(crate) struct Guarded<S> {
    stream: S,
    state: Arc<ConnectionState>,
    scanner: Option<Scanner>,
    thinner: Thinner,
    frames: Option<Frames>,
    /// If set, the parser gets no further bytes.
    refused: Option<Ambiguous>,
    /// Replaces the server's own refusal.
    explanation: Option<RefusalText>,
    /// If true, an answer begins next.
    is_flushed: bool,
    is_upgraded: bool,
    has_begun: bool,
    timeouts: ClientTimeouts,
    silent_since: Option<Instant>,
    head_since: Option<Instant>,
    timer: Timer,
    unread_since: Option<Instant>,
    unread_timer: Option<Timer>,
    rest_timer: Option<Timer>,
}

struct RefusalText {
    bytes: Vec<u8>,
    written: usize,
}

fn unreadable(status: StatusCode, why: Option<String>, answer: &[u8]) -> Option<RefusalText> {
    const NO_BODY: &str = "content-length: 0\r\n";
    let head = std::str::from_utf8(answer).ok().filter(|head| head.ends_with("\r\n\r\n"))?;
    let (before, after) = head.split_once(NO_BODY)?;
    let why = why.unwrap_or_else(|| why_refused(status).to_owned());
    let text = format!("{}: {why}\n", status.canonical_reason().unwrap_or_default());
    let length = text.len();
    let bytes = format!(
        "{before}content-type: text/plain; charset=utf-8\r\ncontent-length: {length}\r\n{after}{text}"
    );
    Some(RefusalText { bytes: bytes.into_bytes(), written: 0 })
}

fn why_refused(status: StatusCode) -> &'static str {
    match status {
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            "The head of the request has more than 64 KiB, or more than 1,000 lines."
        }
        _ => "The request is malformed.",
    }
}

impl<S> Guarded<S> {
    pub(crate) fn new(
        stream: S,
        state: Arc<ConnectionState>,
        http2: Option<Frames>,
        timeouts: ClientTimeouts,
    ) -> Self {
        Self {
            stream,
            thinner: Thinner::new(state.surplus.clone()),
            state,
            scanner: http2.is_none().then(Scanner::default),
            frames: http2,
            refused: None,
            explanation: None,
            is_flushed: true,
            is_upgraded: false,
            has_begun: false,
            timeouts,
            silent_since: None,
            head_since: None,
            timer: Timer::new(Instant::now() + timeouts.head),
            unread_since: None,
            unread_timer: None,
            rest_timer: None,
        }
    }

    fn explain(&mut self, bytes: &[u8]) {
        if !std::mem::take(&mut self.is_flushed) || self.scanner.is_none() {
            return;
        }
        let status = bytes.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5));
        let status = status.and_then(|status| StatusCode::from_bytes(status).ok());
        let Some(status) = status.filter(|status| is_refusal(*status)) else { return };
        if !self.state.take_refusal() {
            let why = self.refused.map(|Ambiguous(why)| format!("The request has {why}."));
            self.explanation = unreadable(status, why, bytes);
        }
    }

    fn has_rest(&self) -> bool {
        let is_between = |scanner: &Scanner| scanner.state() == FramingState::Between;
        self.scanner.as_ref().is_some_and(|scanner| {
            self.refused.is_some() || self.state.has_unread_body() || !is_between(scanner)
        })
    }

    fn poll_upgrade(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(scanner) = &mut self.scanner else { return Poll::Ready(()) };
        if scanner.state() != FramingState::Upgrade {
            return Poll::Ready(());
        }
        self.state.waker.register(cx.waker());
        match self.state.upgrade.swap(UNDECIDED, Ordering::AcqRel) {
            UNDECIDED => return Poll::Pending,
            UPGRADED => {
                self.scanner = None;
                self.is_upgraded = true;
            }
            _ => scanner.upgrade_was_refused(),
        }
        Poll::Ready(())
    }

    /// Replaces refused bytes by zeros, which the parser refuses. Returns false if there is nothing for it
    /// yet.
    fn check(&mut self, buffer: &mut ReadBuf<'_>, before: usize) -> bool {
        let Some(scanner) = &mut self.scanner else { return true };
        let bytes = &mut buffer.filled_mut()[before..];
        let refused = scanner.feed(bytes).err().map(|(at, why)| {
            tracing::debug!(%why, "Request refused with 400");
            bytes[at..].fill(0);
            self.refused = Some(why);
            at
        });
        self.thinner.thin(scanner, buffer, before, refused)
    }

    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(deadline) = self.deadline() {
            ready!(self.timer.poll_until(deadline, cx));
            if !self.begins_goaway() {
                return Poll::Ready(());
            }
        }
        if !self.is_upgraded {
            // The server does not read again when the answer ends, so this timer wakes it.
            let look = Instant::now() + self.timeouts.idle / LOOKS_WHILE_IDLE;
            let _ = self.timer.poll_until(look, cx);
        }
        Poll::Pending
    }

    /// Puts the end of an idle HTTP/2 connection off, once.
    fn begins_goaway(&self) -> bool {
        let is_idle = self.has_begun && self.frames.as_ref().is_some_and(|frames| !frames.is_in_head());
        is_idle && !self.state.is_idle_for_too_long.swap(true, Ordering::Relaxed)
    }

    /// Times out: a client that reads nothing would occupy the pod.
    fn written<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() || self.is_upgraded {
            self.unread_since = None;
            return written;
        }
        let deadline = *self.unread_since.get_or_insert_with(Instant::now) + self.timeouts.idle;
        let timer = self.unread_timer.get_or_insert_with(|| Timer::new(deadline));
        timer.poll_until(deadline, cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn deadline(&mut self) -> Option<Instant> {
        let state = self.scanner.as_ref().map_or(FramingState::Between, Scanner::state);
        let is_in_head = state == FramingState::Head || self.frames.as_ref().is_some_and(Frames::is_in_head);
        let is_waiting_for_answer =
            state == FramingState::Between && !is_in_head && self.state.active.load(Ordering::Relaxed) > 0;
        if self.is_upgraded || is_waiting_for_answer {
            self.silent_since = None;
            return None;
        }
        if is_in_head || !self.has_begun {
            let since = *self.head_since.get_or_insert_with(Instant::now);
            return Some(since + self.timeouts.head);
        }
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        let goaway = if self.state.is_idle_for_too_long() { GOAWAY_WITHIN } else { Duration::ZERO };
        Some(since + self.timeouts.idle + goaway)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let mut has_bytes = this.thinner.serve(buffer);
        if has_bytes || this.refused.is_some() {
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_upgrade(cx));
        let before = buffer.filled().len();
        while !has_bytes {
            match Pin::new(&mut this.stream).poll_read(cx, buffer) {
                // This end of the stream makes the parser close the connection.
                Poll::Pending => return this.poll_timeout(cx).map(Ok),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) => {}
            }
            this.has_begun = true;
            has_bytes = this.check(buffer, before);
            let has_head_ended = match &mut this.frames {
                Some(frames) => frames.feed(&buffer.filled()[before..]),
                None => !matches!(this.scanner.as_ref().map(Scanner::state), Some(FramingState::Head)),
            };
            if this.frames.as_mut().is_none_or(Frames::take_has_spoken) {
                this.silent_since = None;
            }
            if has_head_ended {
                this.head_since = None;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> Guarded<S> {
    fn poll_explain(&mut self, length: usize, cx: &mut Context<'_>) -> Option<Poll<io::Result<usize>>> {
        let explanation = self.explanation.as_mut()?;
        while explanation.written < explanation.bytes.len() {
            let left = &explanation.bytes[explanation.written..];
            match Pin::new(&mut self.stream).poll_write(cx, left) {
                Poll::Ready(Ok(written @ 1..)) => explanation.written += written,
                Poll::Ready(Ok(0)) => return Some(Poll::Ready(Err(io::ErrorKind::WriteZero.into()))),
                other => return Some(other),
            }
        }
        self.explanation = None;
        Some(Poll::Ready(Ok(length)))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Guarded<S> {
    /// Closing earlier sends a reset, and the client might not see its answer.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = Instant::now() + REST_WITHIN;
        let timer = self.rest_timer.get_or_insert_with(|| Timer::new(deadline));
        if timer.poll_elapsed(cx).is_ready() {
            return Poll::Ready(());
        }
        let mut bytes = [MaybeUninit::uninit(); 4096];
        loop {
            let mut buffer = ReadBuf::uninit(&mut bytes);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {}
                _ => return Poll::Ready(()),
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.explain(bytes);
        let written = match this.poll_explain(bytes.len(), cx) {
            Some(written) => written,
            None => Pin::new(&mut this.stream).poll_write(cx, bytes),
        };
        this.written(written, cx)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        this.is_flushed |= flushed.is_ready();
        this.written(flushed, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.rest_timer.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        }
        if this.has_rest() {
            ready!(this.poll_rest(cx));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let [piece] = pieces {
            this.explain(piece);
        }
        this.is_flushed = false;
        let length = pieces.iter().map(|piece| piece.len()).sum();
        let written = match this.poll_explain(length, cx) {
            Some(written) => written,
            None => Pin::new(&mut this.stream).poll_write_vectored(cx, pieces),
        };
        this.written(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
