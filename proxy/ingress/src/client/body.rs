//! The body of a client's request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::runtime::Handle;

use crate::client::deadlines::ClientWait;
use crate::client::guarded::ConnectionState;
use crate::headers;

/// Limits on reading the rest of an unused body.
const REST_WITHIN: Duration = Duration::from_secs(30);
const REST_SILENT: Duration = Duration::from_secs(5);

/// When dropped early, some of the rest is discarded first: some clients do not see the answer if their
/// upload is reset.
pub(crate) struct ClientBody {
    body: Option<Incoming>,
    state: Arc<ConnectionState>,
    message: u64,
    /// `None` unless the client speaks HTTP/2.
    wait: Option<Arc<ClientWait>>,
    may_be_silent: bool,
    /// A body in chunks does not say by itself that it has been read.
    is_over: bool,
}

impl ClientBody {
    pub(crate) fn new(
        body: Incoming,
        state: Arc<ConnectionState>,
        message: u64,
        wait: Option<Arc<ClientWait>>,
    ) -> Self {
        Self { body: Some(body), state, message, wait, may_be_silent: false, is_over: false }
    }

    /// gRPC streams wait for events.
    pub(crate) fn allow_silence(&mut self) {
        self.may_be_silent = true;
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx);
        if let Some(wait) = this.wait.as_ref().filter(|_| !this.may_be_silent) {
            wait.set_body_is_missing(polled.is_pending());
        }
        let mut frame = ready!(polled);
        this.is_over |= !matches!(frame, Some(Ok(_)));
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            this.state.surplus.complete_trailers(this.message, trailers);
            headers::clean_trailers(trailers);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for ClientBody {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| !body.is_end_stream() && !self.is_over) else {
            return;
        };
        let Some(wait) = &self.wait else {
            // The server closes the connection after the answer.
            self.state.note_unread_body();
            return;
        };
        wait.set_body_is_missing(false);
        if let (false, Ok(runtime)) = (wait.is_over(), Handle::try_current()) {
            runtime.spawn(take_in_rest(body));
        }
    }
}

async fn take_in_rest(mut body: Incoming) {
    let taking =
        async { while let Ok(Some(Ok(_))) = tokio::time::timeout(REST_SILENT, body.frame()).await {} };
    let _ = tokio::time::timeout(REST_WITHIN, taking).await;
}
