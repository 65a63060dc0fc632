//! Bodies of answers, and the proxy's own answers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};

use crate::client::deadlines::ClientWait;
use crate::client::guarded::ActiveRequest;
use crate::pod::from_pod::{BodyError, FromPod};

pub(super) struct AnswerBody {
    body: AnswerKind,
    rest: Bytes,
    /// `None` unless the client speaks HTTP/2.
    wait: Option<Arc<ClientWait>>,
    _active_request: Option<ActiveRequest>,
}

/// An HTTP/2 client must read each part within the idle timeout.
const LARGEST_PART: usize = 16 * 1024;

enum AnswerKind {
    Text(Option<Bytes>),
    Pod(Box<FromPod>),
}

impl AnswerBody {
    pub(super) fn empty() -> Self {
        Self::new(AnswerKind::Text(None))
    }

    pub(super) fn text(text: String) -> Self {
        Self::new(AnswerKind::Text(Some(text.into())))
    }

    pub(super) fn from_pod(body: FromPod) -> Self {
        Self::new(AnswerKind::Pod(Box::new(body)))
    }

    fn new(body: AnswerKind) -> Self {
        Self { body, rest: Bytes::new(), wait: None, _active_request: None }
    }

    pub(super) fn of_request(
        self,
        active_request: Option<ActiveRequest>,
        wait: Option<Arc<ClientWait>>,
    ) -> Self {
        Self { _active_request: active_request, wait, ..self }
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.body {
            AnswerKind::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            AnswerKind::Pod(body) => Pin::new(&mut **body).poll_frame(cx),
        }
    }

    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.rest.is_empty() {
            match ready!(self.poll_body(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                end => return Poll::Ready(end),
            }
        }
        let part = self.rest.split_to(self.rest.len().min(LARGEST_PART));
        Poll::Ready(Some(Ok(Frame::data(part))))
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if this.wait.is_none() {
            return this.poll_body(cx);
        }
        let part = this.poll_part(cx);
        if let Some(wait) = &this.wait {
            wait.set_answer_is_handed_over(part.is_ready());
        }
        part
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            _ if !self.rest.is_empty() => false,
            AnswerKind::Text(text) => text.is_none(),
            AnswerKind::Pod(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            _ if !self.rest.is_empty() => SizeHint::default(),
            AnswerKind::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            AnswerKind::Pod(body) => body.size_hint(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnAnswer {
    pub(super) status: StatusCode,
    slug: &'static str,
    title: &'static str,
    pub(super) detail: String,
}

impl OwnAnswer {
    pub(super) fn bad_request(detail: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", "Bad request", detail.to_owned())
    }

    pub(super) fn no_route(host: &str, path: &str) -> Self {
        let detail = format!("No service has an ingress rule for host {host:?} and path {path:?}.");
        Self::new(StatusCode::NOT_FOUND, "no-route", "No route", detail)
    }

    pub(super) fn not_ready(detail: String) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "no-ready-pod", "No ready pod", detail)
    }

    pub(super) fn full(detail: String) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "pods-full", "Pods are full", detail)
    }

    pub(super) fn bad_gateway(detail: String) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "no-answer", "No answer from the pod", detail)
    }

    pub(super) fn timeout(detail: String) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "answer-timeout", "The pod did not answer in time", detail)
    }

    pub(super) fn too_many() -> Self {
        let detail = "As many requests are in flight as this client, or all together, may have.".to_owned();
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "too-many-requests", "Too many requests", detail)
    }

    pub(super) fn no_https(host: &str, advice: &str) -> Self {
        let detail =
            format!("Host {host:?} is served by HTTPS only, and this node has no HTTPS for it. {advice}");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "no-https", "No HTTPS", detail)
    }

    fn new(status: StatusCode, slug: &'static str, title: &'static str, detail: String) -> Self {
        Self { status, slug, title, detail }
    }

    pub(super) fn response(&self, accepts_json: bool) -> Response<AnswerBody> {
        let text = if accepts_json { self.json() } else { format!("{}: {}\n", self.title, self.detail) };
        let mut response = Response::new(AnswerBody::text(text));
        *response.status_mut() = self.status;
        let media_type = if accepts_json { "application/problem+json" } else { "text/plain; charset=utf-8" };
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("2"));
        }
        response
    }

    fn json(&self) -> String {
        serde_json::json!({
            "type": self.slug, "title": self.title, "status": self.status.as_u16(), "detail": self.detail,
        })
        .to_string()
    }
}

pub(super) fn accepts_json(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.contains("json") && !accept.contains("text/html")
}
