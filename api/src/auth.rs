//! Who may come in: whoever has the token; without one, programs of this machine, but not web pages it looks at.
//!
//! Without a token the API listens on loopback only, and still a browser on this machine could be made to send requests
//! by any page it shows: a form posted across sites, or a host name that is rebound to 127.0.0.1. Both carry a
//! header that gives them away.

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use common::config::Secret;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::problem::{ApiProblem, Kind};
use crate::state::App;

/// Decides who may come in.
pub(crate) struct Guard {
    /// SHA-256 of the token: comparing digests tells nothing about where two tokens differ, or how long one is.
    token: Option<[u8; 32]>,
}

impl Guard {
    /// Asks for this token, if there is one.
    pub(crate) fn new(token: Option<&Secret>) -> Self {
        Self { token: token.map(|token| Sha256::digest(token.expose()).into()) }
    }

    fn judge(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiProblem> {
        if is_open(uri.path()) {
            return Ok(());
        }
        match &self.token {
            Some(token) => judge_token(token, headers),
            None => judge_origin(uri, headers),
        }
    }
}

/// Refuses requests before they reach a handler.
pub(crate) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    match app.guard.judge(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// What anybody may see: whether the process is well, and how to talk to it.
fn is_open(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/openapi.json" | "/docs") || path.starts_with("/docs/")
}

fn judge_token(token: &[u8; 32], headers: &HeaderMap) -> Result<(), ApiProblem> {
    let detail = "send the header `Authorization: Bearer <token>` with the token of KUBELEET_TOKEN";
    let Some(header) = headers.get(AUTHORIZATION) else {
        return Err(ApiProblem::new(Kind::Unauthorized, detail));
    };
    let given = bearer(header.as_bytes())
        .ok_or_else(|| ApiProblem::new(Kind::Unauthorized, format!("no bearer token: {detail}")))?;
    let digest: [u8; 32] = Sha256::digest(given).into();
    if bool::from(digest.ct_eq(token)) {
        Ok(())
    } else {
        Err(ApiProblem::new(Kind::Unauthorized, "this is not the token of this API's KUBELEET_TOKEN"))
    }
}

fn bearer(header: &[u8]) -> Option<&[u8]> {
    let space = header.iter().position(|byte| *byte == b' ')?;
    let (scheme, token) = header.split_at(space);
    scheme.eq_ignore_ascii_case(b"bearer").then(|| token.trim_ascii())
}

fn judge_origin(uri: &Uri, headers: &HeaderMap) -> Result<(), ApiProblem> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(HOST).or_else(|| uri.authority().map(|authority| authority.as_str()));
    if let Some(host) = host
        && !is_local_name(host)
    {
        let detail =
            "without KUBELEET_TOKEN the API answers to `localhost` and addresses only, not to other names";
        return Err(ApiProblem::new(Kind::CrossOrigin, detail));
    }
    match text(ORIGIN) {
        Some(origin) if origin.split_once("://").map(|(_, site)| site) != host => {
            let detail = "without KUBELEET_TOKEN pages of other sites may not use the API";
            Err(ApiProblem::new(Kind::CrossOrigin, detail))
        }
        _ => Ok(()),
    }
}

/// `localhost` or an address, with or without a port. Other names can be rebound by whoever owns them.
fn is_local_name(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    type Headers = &'static [(&'static str, &'static str)];

    fn status(guard: &Guard, path: &str, headers: Headers) -> u16 {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let judged = guard.judge(&path.parse().unwrap(), &headers.collect());
        judged.map_or_else(|problem| problem.kind.status().as_u16(), |()| 200)
    }

    #[test]
    fn with_a_token_only_the_token_counts() {
        let guard = Guard::new(Some(&Secret::new("s3cret")));
        let table: &[(&str, Headers, u16)] = &[
            ("/service", &[], 401),
            ("/metrics", &[], 401),
            ("/service", &[("authorization", "Bearer s3cret")], 200),
            ("/service", &[("authorization", "bearer  s3cret ")], 200),
            ("/service", &[("authorization", "Bearer s3cre")], 401),
            ("/service", &[("authorization", "Bearer ")], 401),
            ("/service", &[("authorization", "Basic s3cret")], 401),
            ("/service", &[("authorization", "s3cret")], 401),
            ("/service", &[("authorization", "Bearer s3cret"), ("host", "api.example")], 200),
            ("/healthz", &[], 200),
            ("/readyz", &[], 200),
            ("/openapi.json", &[], 200),
            ("/docs/index.html", &[], 200),
            ("/docsx", &[], 401),
        ];
        for (path, headers, expected) in table {
            assert_eq!(status(&guard, path, headers), *expected, "{path} {headers:?}");
        }
    }

    #[test]
    fn without_a_token_pages_of_other_sites_stay_out() {
        let guard = Guard::new(None);
        let table: &[(Headers, u16)] = &[
            (&[], 200),
            (&[("host", "127.0.0.1:7070")], 200),
            (&[("host", "localhost:7070")], 200),
            (&[("host", "[::1]:7070")], 200),
            (&[("host", "rebound.example:7070")], 403),
            (&[("host", "localhost:7070"), ("origin", "http://localhost:7070")], 200),
            (&[("host", "localhost:7070"), ("origin", "https://evil.example")], 403),
            (&[("host", "localhost:7070"), ("origin", "null")], 403),
        ];
        for (headers, expected) in table {
            assert_eq!(status(&guard, "/service", headers), *expected, "{headers:?}");
        }
    }
}
