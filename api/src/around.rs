//! Around every request: its id, its span in the log, its time limit, its metrics, and the form of its problems.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tracing::Instrument;

use crate::problem::{ApiProblem, Kind, rendered};

/// How long a request may take until its answer begins. Streams may go on for longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What is done for every request, found or not.
pub(crate) async fn around(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id(request.headers());
    let method = method_word(request.method());
    let path = request.uri().path().to_owned();
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str).to_owned();
    let span = tracing::info_span!("request", %id, method, path);
    let mut response = rendered(answer(request, next).instrument(span.clone()).await, &path, &id);
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    let status = response.status();
    span.in_scope(|| log(status, started.elapsed()));
    crate::metrics::count_request(method, route, status.as_u16(), started.elapsed());
    response
}

async fn answer(request: Request, next: Next) -> Response {
    let guarded = AssertUnwindSafe(next.run(request)).catch_unwind();
    match tokio::time::timeout(LIMIT, guarded).await {
        Ok(Ok(response)) => response,
        // The panic's own words are in the log already, through the panic hook.
        Ok(Err(_)) => {
            tracing::error!("a handler broke");
            ApiProblem::internal().into_response()
        }
        Err(_) => {
            let detail = format!("no answer within {} s; repeating the request is safe", LIMIT.as_secs());
            ApiProblem::new(Kind::Timeout, detail).into_response()
        }
    }
}

fn log(status: StatusCode, took: Duration) {
    let (status_code, millis) = (status.as_u16(), took.as_millis() as u64);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        // Redis is away: the link says so once, every request would say it again.
        tracing::debug!(status = status_code, millis, "answered");
    } else if status.is_server_error() {
        tracing::warn!(status = status_code, millis, "answered");
    } else {
        tracing::debug!(status = status_code, millis, "answered");
    }
}

/// The id the client gave, when it can stand in a log; else a fresh one.
fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    let fits =
        |id: &&str| (1..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic() && b != b'"');
    given.filter(fits).map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned)
}

/// A word for the method, out of few: it labels metrics.
fn method_word(method: &Method) -> &'static str {
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
    use super::*;

    #[test]
    fn a_request_id_can_not_forge_a_log() {
        let with = |id: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_bytes(id.as_bytes()).unwrap());
            request_id(&headers)
        };
        assert_eq!(with("abc-1"), "abc-1");
        let long = "x".repeat(129);
        for bad in ["", "a b", "a\"b", "é", &long] {
            assert_ne!(with(bad), bad);
        }
    }
}
