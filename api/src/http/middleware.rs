//! Layers around every request.

use std::any::Any;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode};
use axum::middleware::{Next, from_fn, map_request};
use axum::response::{IntoResponse, Response};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, RequestId, SetRequestIdLayer};
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;
use tracing::Span;

use crate::http::problem::{ApiProblem, REQUEST_TIMEOUT, render};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const MAX_REQUEST_ID_LENGTH: usize = 128;

/// The last layer is the outermost.
pub(crate) fn apply(router: Router) -> Router {
    let trace = TraceLayer::new_for_http()
        .make_span_with(request_span)
        .on_request(())
        .on_response(log_response)
        .on_body_chunk(())
        .on_eos(())
        .on_failure(());
    router
        .layer(CatchPanicLayer::custom(answer_panic))
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, REQUEST_TIMEOUT))
        .layer(from_fn(render_and_count))
        .layer(PropagateRequestIdLayer::new(REQUEST_ID))
        .layer(trace)
        .layer(SetRequestIdLayer::new(REQUEST_ID, MakeRequestUuid))
        .layer(map_request(drop_invalid_request_id))
}

async fn render_and_count(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id(&request);
    let method = method_label(request.method());
    let path = request.uri().path().to_owned();
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str).to_owned();
    let response = render(next.run(request).await, method, &path, &id);
    crate::metrics::count_request(method, route, response.status().as_u16(), started.elapsed());
    response
}

fn answer_panic(_: Box<dyn Any + Send>) -> Response {
    // The panic hook has already logged the message and location.
    tracing::error!("a handler panicked; the client gets an internal error");
    ApiProblem::internal().into_response()
}

fn request_span(request: &Request<Body>) -> Span {
    let id = request_id(request);
    tracing::info_span!("request", %id, method = method_label(request.method()), path = request.uri().path())
}

fn log_response(response: &Response<Body>, took: Duration, _: &Span) {
    let (status, millis) = (response.status(), took.as_millis() as u64);
    // Only outages of Redis have this status: the link and `RedisWatch` log each once.
    if status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE {
        tracing::warn!(status = status.as_u16(), millis, "request failed");
    } else {
        tracing::debug!(status = status.as_u16(), millis, "request answered");
    }
}

fn request_id(request: &Request) -> String {
    let id = request.extensions().get::<RequestId>().and_then(|id| id.header_value().to_str().ok());
    id.unwrap_or_default().to_owned()
}

/// A client may name its request; an id with other characters could forge a log line.
async fn drop_invalid_request_id(mut request: Request) -> Request {
    if !has_valid_request_id(request.headers()) {
        request.headers_mut().remove(REQUEST_ID);
    }
    request
}

fn has_valid_request_id(headers: &HeaderMap) -> bool {
    let is_valid = |id: &str| {
        (1..=MAX_REQUEST_ID_LENGTH).contains(&id.len())
            && id.bytes().all(|b| b.is_ascii_graphic() && b != b'"')
    };
    headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).is_some_and(is_valid)
}

/// Clients may send any method: labels must stay few.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_request_id_cannot_forge_a_log_line() {
        let is_kept = |id: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_bytes(id.as_bytes()).unwrap());
            has_valid_request_id(&headers)
        };
        assert!(is_kept("abc-1"));
        let long = "x".repeat(129);
        for bad in ["", "a b", "a\"b", "é", &long] {
            assert!(!is_kept(bad), "{bad}");
        }
    }
}
