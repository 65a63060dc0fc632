//! The dialing end of a connection to a pod that is kept from one request to the next.
//!
//! Each request asks the gate of the pod's host anew, on the same connection: what is idle counts nowhere, and the gate
//! still counts exactly the requests. A request that may be sent twice is sent together with the question. If the gate
//! refuses, the other end throws away what came with it, and the pod has seen nothing.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::dial::TunnelStream;
use super::frame::{Arrived, Frame, MAX_PAYLOAD, put_some_data};
use super::refusal_of;
use crate::gate::Refusal;

/// Why a request has not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotAccepted {
    /// The gate let nothing in.
    Refused,
    /// The connection has ended, or was not idle.
    Ended,
}

/// A connection to a port of a pod, for one request after the other. Its clones are the same connection: one is the
/// stream that HTTP is spoken on, and one asks the gate between two requests.
#[derive(Clone)]
pub struct KeptStream(Arc<Mutex<Inner>>);

struct Inner {
    stream: TunnelStream,
    arrived: Arrived,
    /// Bytes of the pod that were not read yet.
    data: Bytes,
    /// Frames that were not written yet.
    unsent: BytesMut,
    refusal: Option<Refusal>,
    /// Whether something has come since the last request began.
    has_heard: bool,
}

impl fmt::Debug for KeptStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptStream")
    }
}

impl KeptStream {
    /// Takes a connection whose first request was let in.
    pub(super) fn new(stream: TunnelStream) -> Self {
        let (arrived, data, unsent) = (Arrived::default(), Bytes::new(), BytesMut::new());
        Self(Arc::new(Mutex::new(Inner { stream, arrived, data, unsent, refusal: None, has_heard: true })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the gate to let the next request in, together with its first bytes. If it does not, they end with an error
    /// and [`refusal`](Self::refusal) says so.
    pub(crate) fn begin(&self) {
        self.lock().begin(false);
    }

    /// Asks the gate to let the next request in, and waits for its answer.
    ///
    /// # Errors
    /// If it does not. The connection cannot be used any more then.
    ///
    /// # Cancel safety
    /// The connection cannot be used after it was cancelled.
    pub(crate) async fn begin_and_wait(&self) -> Result<(), NotAccepted> {
        self.lock().begin(true);
        let answer = std::future::poll_fn(|cx| {
            let mut inner = self.lock();
            ready!(inner.poll_flush(cx))?;
            inner.poll_frame(cx)
        });
        match answer.await {
            Ok(Some(Frame::Accepted)) => Ok(()),
            Ok(Some(Frame::Refused(_))) => Err(NotAccepted::Refused),
            Ok(Some(_) | None) | Err(_) => Err(NotAccepted::Ended),
        }
    }

    /// Says that the request was answered. Returns whether that was sent at once; otherwise the connection has to end.
    pub(crate) fn end(&self, cx: &mut Context<'_>) -> bool {
        let mut inner = self.lock();
        // What the pod has said beyond its answer would be taken for the next one.
        if !inner.data.is_empty() || !inner.arrived.is_empty() {
            return false;
        }
        Frame::End.write(&mut inner.unsent);
        matches!(inner.poll_flush(cx), Poll::Ready(Ok(())))
    }

    /// Returns whether the other host has said something since the last request began. It does within 1 s.
    pub(crate) fn has_heard(&self) -> bool {
        self.lock().has_heard
    }

    /// Returns why the request that was begun last was not let in.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.lock().refusal
    }
}

impl Inner {
    fn begin(&mut self, wants_answer: bool) {
        self.has_heard = false;
        Frame::Begin { wants_answer }.write(&mut self.unsent);
    }

    /// Reads the next frame; `None` at the end of the connection.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Frame>>> {
        let frame = ready!(self.arrived.poll_frame(&mut self.stream, cx))?;
        self.has_heard |= frame.is_some();
        Poll::Ready(Ok(frame))
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
            match ready!(inner.poll_frame(cx))? {
                Some(Frame::Data(bytes)) => inner.data = bytes,
                // The pod takes its time.
                Some(Frame::Accepted) => {}
                Some(Frame::Refused(reply)) => {
                    let refusal = refusal_of(reply);
                    inner.refusal = Some(refusal);
                    return Poll::Ready(Err(io::Error::other(refusal)));
                }
                Some(_) => return Poll::Ready(Err(io::Error::other("a frame that was not due"))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let length = inner.data.len().min(buffer.remaining());
        buffer.put_slice(&inner.data.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for KeptStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut inner = self.lock();
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
