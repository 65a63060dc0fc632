//! A client's connection whose requests are checked before the parser sees them, and which ends when a client
//! takes too long.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::framing::{FramingState, Scanner};
use crate::timer::Timer;

use super::frames::Frames;

/// How often in the time in which a client may be silent it is looked whether its answer has ended.
const LOOKS_WHILE_IDLE: u32 = 4;

const UNDECIDED: u8 = 0;
const UPGRADED: u8 = 1;
const NOT_UPGRADED: u8 = 2;

/// What a connection and its requests tell each other.
#[derive(Debug, Default)]
pub(super) struct ConnectionState {
    /// Requests that have not ended.
    active: AtomicUsize,
    /// The answer to a request to upgrade.
    upgrade: AtomicU8,
    waker: AtomicWaker,
}

/// A request that has not ended.
pub(super) struct ActiveRequest(Arc<ConnectionState>);

impl ActiveRequest {
    /// Begins a request.
    pub(super) fn new(state: &Arc<ConnectionState>) -> Self {
        state.active.fetch_add(1, Ordering::Relaxed);
        Self(state.clone())
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConnectionState {
    /// Decides a request to upgrade: what the client sends next is not HTTP, or is another request.
    pub(super) fn decide_upgrade(&self, is_upgraded: bool) {
        self.upgrade.store(if is_upgraded { UPGRADED } else { NOT_UPGRADED }, Ordering::Release);
        self.waker.wake();
    }
}

/// How long a client may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientTimeouts {
    pub(super) head: Duration,
    pub(super) idle: Duration,
}

/// The connection. `S` is the stream.
pub(super) struct Guarded<S> {
    stream: S,
    state: Arc<ConnectionState>,
    /// `None` when the bytes are not HTTP/1.
    scanner: Option<Scanner>,
    /// `None` when the bytes are not HTTP/2.
    frames: Option<Frames>,
    is_refused: bool,
    is_upgraded: bool,
    has_begun: bool,
    timeouts: ClientTimeouts,
    /// Since when nothing came.
    silent_since: Option<Instant>,
    /// Since when a head is incomplete.
    head_since: Option<Instant>,
    timer: Timer,
    /// Since when the client takes in nothing of what there is for it.
    unread_since: Option<Instant>,
    unread_timer: Option<Timer>,
}

impl<S> Guarded<S> {
    pub(super) fn new(
        stream: S,
        state: Arc<ConnectionState>,
        http2: Option<Frames>,
        timeouts: ClientTimeouts,
    ) -> Self {
        Self {
            stream,
            state,
            scanner: http2.is_none().then(Scanner::default),
            frames: http2,
            is_refused: false,
            is_upgraded: false,
            has_begun: false,
            timeouts,
            silent_since: None,
            head_since: None,
            timer: Timer::new(Instant::now() + timeouts.head),
            unread_since: None,
            unread_timer: None,
        }
    }

    /// Waits for the answer to a request to upgrade, if there is one.
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

    /// Checks the bytes. What must not reach the parser is replaced by what it is sure to refuse.
    fn check(&mut self, bytes: &mut [u8]) {
        let Some(scanner) = &mut self.scanner else { return };
        if let Err((at, why)) = scanner.feed(bytes) {
            tracing::debug!(%why, "Request refused with 400");
            bytes[at..].fill(0);
            self.is_refused = true;
        }
    }

    /// Completes when the client takes too long. Called when nothing has come.
    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(deadline) = self.deadline() {
            return self.timer.poll_until(deadline, cx);
        }
        if !self.is_upgraded {
            // The server does not read again when the answer has ended: it has been told that nothing came.
            let look = Instant::now() + self.timeouts.idle / LOOKS_WHILE_IDLE;
            let _ = self.timer.poll_until(look, cx);
        }
        Poll::Pending
    }

    /// Passes on how a write went. One that waits fails when the client takes in nothing for too long: its
    /// request would keep the pod.
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
        Some(since + self.timeouts.idle)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_refused {
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_upgrade(cx));
        let before = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(cx, buffer) {
            // The end of the stream for the parser: it closes the connection.
            Poll::Pending => this.poll_timeout(cx).map(Ok),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) => {
                this.silent_since = None;
                this.has_begun = true;
                this.check(&mut buffer.filled_mut()[before..]);
                let has_head_ended = match &mut this.frames {
                    Some(frames) => frames.feed(&buffer.filled()[before..]),
                    None => !matches!(this.scanner.as_ref().map(Scanner::state), Some(FramingState::Head)),
                };
                if has_head_ended {
                    this.head_since = None;
                }
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.written(written, cx)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        this.written(flushed, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, pieces);
        this.written(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
