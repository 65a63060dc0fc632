//! The body of a request on its way to a pod.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::stream_count::OpenStream;
use crate::client::body::ClientBody;

pub(crate) enum RequestToPod {
    Empty,
    Streamed {
        body: ClientBody,
        progress: Arc<BodyProgress>,
        /// If requests share the connection.
        stream: Option<Arc<OpenStream>>,
    },
}

#[derive(Debug, Default)]
pub(crate) struct BodyProgress {
    has_begun: AtomicBool,
    has_ended: AtomicBool,
    has_failed: AtomicBool,
}

impl BodyProgress {
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }
}

impl RequestToPod {
    /// Counts the stream as open until the body is sent, also after the answer.
    pub(crate) fn hold_open(&mut self, of: &Arc<OpenStream>) {
        if let RequestToPod::Streamed { stream, .. } = self {
            *stream = Some(of.clone());
        }
    }
}

impl Body for RequestToPod {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            RequestToPod::Empty => Poll::Ready(None),
            RequestToPod::Streamed { body, progress, .. } => {
                let frame = std::task::ready!(Pin::new(&mut *body).poll_frame(cx));
                progress.has_begun.store(true, Ordering::Relaxed);
                if matches!(frame, Some(Err(_))) {
                    progress.has_failed.store(true, Ordering::Relaxed);
                }
                if frame.is_none() || body.is_end_stream() {
                    progress.has_ended.store(true, Ordering::Relaxed);
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            RequestToPod::Empty => true,
            RequestToPod::Streamed { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestToPod::Empty => SizeHint::with_exact(0),
            RequestToPod::Streamed { body, .. } => body.size_hint(),
        }
    }
}
