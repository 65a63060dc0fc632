//! Bodies of answers, and the answers that the proxy gives itself.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};

use super::from_pod::{BodyError, FromPod};
use super::guarded::ActiveRequest;

/// The body of an answer to a client.
pub(super) struct AnswerBody {
    body: AnswerKind,
    /// Ends when the answer has.
    _active_request: Option<ActiveRequest>,
}

enum AnswerKind {
    Text(Option<Bytes>),
    Pod(Box<FromPod>),
}

impl AnswerBody {
    pub(super) fn empty() -> Self {
        Self { body: AnswerKind::Text(None), _active_request: None }
    }

    pub(super) fn text(text: String) -> Self {
        Self { body: AnswerKind::Text(Some(text.into())), _active_request: None }
    }

    pub(super) fn from_pod(body: FromPod) -> Self {
        Self { body: AnswerKind::Pod(Box::new(body)), _active_request: None }
    }

    pub(super) fn with_active_request(self, active_request: ActiveRequest) -> Self {
        Self { _active_request: Some(active_request), ..self }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.get_mut().body {
            AnswerKind::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            AnswerKind::Pod(body) => Pin::new(&mut **body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            AnswerKind::Text(text) => text.is_none(),
            AnswerKind::Pod(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            AnswerKind::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            AnswerKind::Pod(body) => body.size_hint(),
        }
    }
}

/// A request that the proxy answers itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnAnswer {
    pub(super) status: StatusCode,
    /// A stable word for programs.
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

    pub(super) fn bad_gateway(detail: String) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "no-answer", "No answer from the pod", detail)
    }

    pub(super) fn timeout(detail: String) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "answer-timeout", "The pod did not answer in time", detail)
    }

    /// A route wants HTTPS, and this node does not serve the host by it.
    pub(super) fn no_https(host: &str, advice: &str) -> Self {
        let detail =
            format!("Host {host:?} is served by HTTPS only, and this node has no HTTPS for it. {advice}");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "no-https", "No HTTPS", detail)
    }

    fn new(status: StatusCode, slug: &'static str, title: &'static str, detail: String) -> Self {
        Self { status, slug, title, detail }
    }

    /// Returns the answer: problem details for programs that take JSON, else text.
    pub(super) fn response(&self, accepts_json: bool) -> Response<AnswerBody> {
        let text = if accepts_json { self.json() } else { format!("{}: {}\n", self.title, self.detail) };
        let mut response = Response::new(AnswerBody::text(text));
        *response.status_mut() = self.status;
        let media_type = if accepts_json { "application/problem+json" } else { "text/plain; charset=utf-8" };
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("2"));
        }
        if self.status == StatusCode::BAD_REQUEST {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
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

/// Returns whether the client prefers JSON to text.
pub(super) fn accepts_json(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.contains("json") && !accept.contains("text/html")
}
