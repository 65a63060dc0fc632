//! The dialing end of a connection that is reused for several requests.
//!
//! Each request asks the gate of the pod's host. One that may be sent twice follows without waiting: if the
//! gate refuses, the other end discards it.
//!
//! An HTTP/2 connection has its own task. Its writes between two requests wait for the next one, so that the
//! pod gets only admitted bytes.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes, BytesMut};
use gate::EnterError;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frame::{Arrived, MAX_PAYLOAD_BYTES, TunnelFrame, put_some_data};
use super::protocol::refusal_of;
use super::stream::TunnelStream;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAccepted {
    Refused,
    Ended,
    Unanswered,
}

/// One clone is HTTP's stream, and one asks the gate.
#[derive(Clone)]
pub struct KeptStream(Arc<Mutex<KeptInner>>);

struct KeptInner {
    stream: TunnelStream,
    arrived: Arrived,
    data: Bytes,
    unsent: BytesMut,
    refusal: Option<EnterError>,
    has_heard: bool,
    is_accepted: bool,
    is_idle: bool,
    has_ended: bool,
    reader: KeptReader,
    writer: Option<Waker>,
}

enum KeptReader {
    Asker,
    Task(Option<Waker>),
}

impl fmt::Debug for KeptStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptStream")
    }
}

impl KeptStream {
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

    pub fn is_read_by_a_task(&self) {
        self.0.lock().reader = KeptReader::Task(None);
    }

    /// Sent with the request's first bytes. After a refusal they end with an error: see
    /// [`refusal`](Self::refusal).
    pub fn begin(&self) {
        self.0.lock().begin(false);
    }

    /// # Errors
    /// If the gate refuses. The connection is unusable then.
    ///
    /// # Cancel safety
    /// The connection is unusable after a cancellation.
    pub async fn begin_and_wait(&self) -> Result<(), NotAccepted> {
        self.0.lock().begin(true);
        std::future::poll_fn(|cx| self.0.lock().poll_accepted(cx)).await
    }

    pub fn has_unread(&self) -> bool {
        let inner = self.0.lock();
        !inner.data.is_empty() || !inner.arrived.is_empty()
    }

    /// Returns false if the connection must end.
    pub fn end(&self, cx: &mut Context<'_>) -> bool {
        let mut inner = self.0.lock();
        inner.is_idle = true;
        TunnelFrame::End.write(&mut inner.unsent);
        matches!(inner.poll_flush(cx), Poll::Ready(Ok(())))
    }

    pub fn close(&self) {
        let mut inner = self.0.lock();
        inner.has_ended |= inner.is_idle;
        wake(&mut inner.writer);
    }

    /// The other host sends something within 1 s.
    pub fn has_heard(&self) -> bool {
        self.0.lock().has_heard
    }

    pub fn refusal(&self) -> Option<EnterError> {
        self.0.lock().refusal
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

    fn poll_accepted(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), NotAccepted>> {
        match (self.poll_flush(cx), &self.reader) {
            (Poll::Ready(Ok(())), _) => {}
            (Poll::Pending, KeptReader::Asker) => return Poll::Pending,
            // The task waits for the same socket, and only one waker would be woken.
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
            // The pod must not send anything now.
            let _ = ready!(self.poll_arrival(cx));
            self.has_ended |= !self.data.is_empty();
        }
    }

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
        let mut inner = self.0.lock();
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
        let mut inner = self.0.lock();
        if inner.is_idle {
            if inner.has_ended {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            inner.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        // May be exceeded by the `Begin` frame, which is sent with the first bytes.
        if inner.unsent.len() > MAX_PAYLOAD_BYTES {
            ready!(inner.poll_drain(cx))?;
        }
        let written = put_some_data(&mut inner.unsent, bytes);
        match inner.poll_drain(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(written)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.0.lock();
        ready!(inner.poll_drain(cx))?;
        Pin::new(&mut inner.stream).poll_shutdown(cx)
    }
}

fn wake(waiting: &mut Option<Waker>) {
    if let Some(waker) = waiting.take() {
        waker.wake();
    }
}
