//! The dialing end of a connection to a pod that is kept from one request to the next.
//!
//! Each request asks the gate of the pod's host anew, on the same connection: what is idle counts nowhere,
//! and the gate still counts exactly the requests. A request that may be sent twice is sent together with the
//! question. If the gate refuses, the other end throws away what came with it, and the pod has seen nothing.
//!
//! HTTP/2 has a task that reads and writes by itself. What it writes between two requests waits for the next
//! one, so that the pod gets nothing that was not let in.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes, BytesMut};
use gate::EnterError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frame::{Arrived, MAX_PAYLOAD, TunnelFrame, put_some_data};
use super::protocol::refusal_of;
use super::stream::TunnelStream;

/// Why a request has not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAccepted {
    /// The gate let nothing in.
    Refused,
    /// The connection has ended, or was not idle.
    Ended,
    /// The other host does not answer.
    Unanswered,
}

/// A connection to a port of a pod, for one request after the other. Its clones are the same connection: one
/// is the stream that HTTP is spoken on, and one asks the gate between two requests.
#[derive(Clone)]
pub struct KeptStream(Arc<Mutex<KeptInner>>);

struct KeptInner {
    stream: TunnelStream,
    arrived: Arrived,
    /// Bytes of the pod that were not read yet.
    data: Bytes,
    /// Frames that were not written yet.
    unsent: BytesMut,
    refusal: Option<EnterError>,
    /// Whether something has come since the last request began.
    has_heard: bool,
    /// Whether the gate has let in the request that waits for it.
    is_accepted: bool,
    /// Whether there is no request.
    is_idle: bool,
    has_ended: bool,
    /// What reads: a task, or otherwise the request that asks the gate.
    reader: KeptReader,
    /// The task that has something to write and waits for the next request.
    writer: Option<Waker>,
}

/// What reads what arrives while the gate is asked.
enum KeptReader {
    Asker,
    /// A task. It wakes who asks.
    Task(Option<Waker>),
}

impl fmt::Debug for KeptStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptStream")
    }
}

impl KeptStream {
    /// Takes a connection whose first request was let in.
    pub(super) fn new(stream: TunnelStream) -> Self {
        Self(Arc::new(Mutex::new(KeptInner {
            stream,
            arrived: Arrived::default(),
            data: Bytes::new(),
            unsent: BytesMut::new(),
            refusal: None,
            has_heard: true,
            is_accepted: true,
            is_idle: false,
            has_ended: false,
            reader: KeptReader::Asker,
            writer: None,
        })))
    }

    /// Says that a task reads from now on.
    pub fn is_read_by_a_task(&self) {
        self.lock().reader = KeptReader::Task(None);
    }

    fn lock(&self) -> MutexGuard<'_, KeptInner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the gate to let the next request in, together with its first bytes. If it does not, they end with
    /// an error and [`refusal`](Self::refusal) says so.
    pub fn begin(&self) {
        self.lock().begin(false);
    }

    /// Asks the gate to let the next request in, and waits for its answer.
    ///
    /// # Errors
    /// If it does not. The connection cannot be used any more then.
    ///
    /// # Cancel safety
    /// The connection cannot be used after it was cancelled.
    pub async fn begin_and_wait(&self) -> Result<(), NotAccepted> {
        self.lock().begin(true);
        std::future::poll_fn(|cx| self.lock().poll_accepted(cx)).await
    }

    /// Returns whether the pod has said something that was not read yet.
    pub fn has_unread(&self) -> bool {
        let inner = self.lock();
        !inner.data.is_empty() || !inner.arrived.is_empty()
    }

    /// Says that the request was answered. Returns whether that was sent at once; otherwise the connection
    /// has to end.
    pub fn end(&self, cx: &mut Context<'_>) -> bool {
        let mut inner = self.lock();
        inner.is_idle = true;
        TunnelFrame::End.write(&mut inner.unsent);
        matches!(inner.poll_flush(cx), Poll::Ready(Ok(())))
    }

    /// Ends the connection, unless there is a request, which ends it itself.
    pub fn close(&self) {
        let mut inner = self.lock();
        inner.has_ended |= inner.is_idle;
        wake(&mut inner.writer);
    }

    /// Returns whether the other host has said something since the last request began. It does within 1 s.
    pub fn has_heard(&self) -> bool {
        self.lock().has_heard
    }

    /// Returns why the request that was begun last was not let in.
    pub fn refusal(&self) -> Option<EnterError> {
        self.lock().refusal
    }
}

impl KeptInner {
    fn begin(&mut self, wants_answer: bool) {
        self.has_heard = false;
        self.is_accepted = false;
        self.is_idle = false;
        TunnelFrame::Begin { wants_answer }.write(&mut self.unsent);
        wake(&mut self.writer);
    }

    /// Waits for the answer of the gate.
    fn poll_accepted(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), NotAccepted>> {
        match (self.poll_flush(cx), &self.reader) {
            (Poll::Ready(Ok(())), _) => {}
            (Poll::Pending, KeptReader::Asker) => return Poll::Pending,
            // Its task waits for the same socket, and only one of them would be woken.
            _ => return Poll::Ready(Err(NotAccepted::Ended)),
        }
        loop {
            if self.refusal.is_some() {
                return Poll::Ready(Err(NotAccepted::Refused));
            }
            if self.is_accepted {
                return Poll::Ready(Ok(()));
            }
            if self.has_ended {
                return Poll::Ready(Err(NotAccepted::Ended));
            }
            if let KeptReader::Task(asker) = &mut self.reader {
                *asker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            // Bytes of the pod are not due now.
            let _ = ready!(self.poll_arrival(cx));
            self.has_ended |= !self.data.is_empty();
        }
    }

    /// Reads the next frame and notes what it says.
    ///
    /// # Errors
    /// If the connection fails, the gate refuses, or a frame was not due.
    fn poll_arrival(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let arrival =
            ready!(self.arrived.poll_frame(&mut self.stream, cx)).and_then(|frame| self.note(frame));
        self.has_ended |= arrival.is_err();
        if let KeptReader::Task(asker) = &mut self.reader {
            wake(asker);
        }
        Poll::Ready(arrival)
    }

    fn note(&mut self, frame: Option<TunnelFrame>) -> io::Result<()> {
        self.has_heard |= frame.is_some();
        match frame {
            Some(TunnelFrame::Data(bytes)) => self.data = bytes,
            // Or the pod takes its time.
            Some(TunnelFrame::Accepted) => self.is_accepted = true,
            Some(TunnelFrame::Refused(reply)) => {
                let refusal = refusal_of(reply);
                self.refusal = Some(refusal);
                return Err(io::Error::other(refusal));
            }
            Some(_) => return Err(io::Error::other("a frame that was not due")),
            None => self.has_ended = true,
        }
        Ok(())
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.unsent))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.unsent.advance(written),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }
}

impl AsyncRead for KeptStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut inner = self.lock();
        while inner.data.is_empty() {
            if inner.has_ended {
                return Poll::Ready(Ok(()));
            }
            ready!(inner.poll_arrival(cx))?;
        }
        let length = inner.data.len().min(buffer.remaining());
        buffer.put_slice(&inner.data.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for KeptStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut inner = self.lock();
        if inner.is_idle {
            if inner.has_ended {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            inner.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        // Beside what may be waiting: the question of the gate, which goes with the first bytes.
        if inner.unsent.len() > MAX_PAYLOAD {
            ready!(inner.poll_drain(cx))?;
        }
        let written = put_some_data(&mut inner.unsent, bytes);
        match inner.poll_drain(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(written)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.lock().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.lock();
        ready!(inner.poll_drain(cx))?;
        Pin::new(&mut inner.stream).poll_shutdown(cx)
    }
}

fn wake(waiting: &mut Option<Waker>) {
    if let Some(waker) = waiting.take() {
        waker.wake();
    }
}
