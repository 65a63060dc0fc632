//! The answer of a pod on its way to the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use gate::Pass;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::task::coop::poll_proceed;

use crate::pod::connection::{Kept, PodConnection, PoolKey};
use crate::pod::request_to_pod::BodyProgress;
use crate::pod::routing_table::{InFlight, Pod};

/// The type is irrelevant: the client only sees a cut connection.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;

pub(crate) struct FromPod {
    body: Incoming,
    resources: Option<RequestResources>,
    /// Returned one poll later, after earlier bytes: otherwise the server would drop the head.
    broken_off: Option<BodyError>,
}

/// Held until the answer has ended.
///
/// The order of the fields matters: the connection ends before the gate learns that the request has.
pub(crate) struct RequestResources {
    pub(crate) connection: PodConnection,
    pub(crate) key: PoolKey,
    pub(crate) pod: Arc<Pod>,
    pub(crate) progress: Option<Arc<BodyProgress>>,
    pub(crate) kept: Kept,
    pub(crate) in_flight: InFlight,
    pub(crate) pass: Option<Pass>,
}

impl RequestResources {
    /// Registers the waker only if `waits`.
    fn poll_cut(&mut self, waits: bool, cx: &mut Context<'_>) -> bool {
        let cut = self.kept.cut.as_mut();
        cut.is_some_and(|cut| if waits { Pin::new(cut).poll(cx).is_ready() } else { cut.has_come() })
    }

    fn end(self, cx: &mut Context<'_>) {
        let Self { mut connection, key, pod, progress, kept, in_flight, pass } = self;
        connection.keep(kept);
        let is_sent = progress.is_none_or(|progress| progress.has_ended());
        let is_kept = is_sent
            && match &pass {
                Some(pass) => pod.pools.keeps(pass),
                None => connection.end(cx),
            };
        if is_kept {
            pod.pools.put(key, connection, cx);
        } else {
            drop(connection);
        }
        drop((in_flight, pass));
    }
}

impl FromPod {
    pub(crate) fn new(body: Incoming, resources: RequestResources) -> Self {
        Self { body, resources: Some(resources), broken_off: None }
    }

    fn break_off(
        &mut self,
        why: BodyError,
        cx: &Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.resources = None;
        self.broken_off = Some(why);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Body for FromPod {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Some(why) = this.broken_off.take() {
            return Poll::Ready(Some(Err(why)));
        }
        let Some(resources) = &mut this.resources else { return Poll::Ready(None) };
        // A stream of many buffered pieces must yield to this thread's other clients.
        let turn = ready!(poll_proceed(cx));
        let mut frame = Pin::new(&mut this.body).poll_frame(cx);
        if frame.is_pending() {
            resources.connection.drive(cx);
            frame = Pin::new(&mut this.body).poll_frame(cx);
        }
        if resources.poll_cut(frame.is_pending(), cx) {
            return this.break_off("the pod is being stopped".into(), cx);
        }
        if let Poll::Ready(Some(Ok(frame))) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            resources.connection.complete_trailers(trailers);
        }
        let has_ended = matches!(frame, Poll::Ready(None)) || this.body.is_end_stream();
        if has_ended && let Some(resources) = this.resources.take() {
            resources.end(cx);
        }
        if frame.is_ready() {
            turn.made_progress();
        }
        match frame {
            Poll::Ready(Some(Err(error))) => this.break_off(error.into(), cx),
            frame => frame.map(|frame| frame.map(|frame| frame.map_err(BodyError::from))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for FromPod {
    /// An answer without a body is never polled.
    fn drop(&mut self) {
        if let (true, Some(resources)) = (self.body.is_end_stream(), self.resources.take()) {
            resources.end(&mut Context::from_waker(Waker::noop()));
        }
    }
}

impl FromPod {
    pub(crate) fn into_upgraded(mut self) -> Option<(Option<Pass>, InFlight)> {
        let RequestResources { connection, in_flight, pass, .. } = self.resources.take()?;
        connection.detach();
        Some((pass, in_flight))
    }
}
