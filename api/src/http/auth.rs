//! Access control: the bearer token if one is configured, otherwise local programs only.
//!
//! Without a token the API listens on loopback only. Even so, a web page could send requests from this
//! machine's browser, by a cross-site form or a rebound host name: `Origin` and `Host` reveal both.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, Method, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use model::value::secret::Secret;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::http::problem::{ApiProblem, ProblemKind};

pub(crate) struct AccessControl {
    /// SHA-256: comparing digests reveals neither the token's length nor where two tokens differ.
    token: Option<[u8; 32]>,
    read_token: Option<[u8; 32]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Operator,
    Reader,
}

impl AccessControl {
    pub(crate) fn new(token: Option<&Secret>, read_token: Option<&Secret>) -> Self {
        let digest = |token: &Secret| Sha256::digest(token.expose()).into();
        Self { token: token.map(digest), read_token: read_token.map(digest) }
    }

    pub(crate) fn is_trusted(&self, headers: &HeaderMap) -> bool {
        self.is_open() || self.role(headers).is_ok()
    }

    fn is_open(&self) -> bool {
        self.token.is_none() && self.read_token.is_none()
    }

    fn check(
        &self,
        method: &Method,
        uri: &Uri,
        template: Option<&str>,
        headers: &HeaderMap,
    ) -> Result<(), ApiProblem> {
        if is_public(uri.path()) {
            return Ok(());
        }
        if self.is_open() {
            return check_origin(uri, headers);
        }
        match self.role(headers)? {
            Role::Reader if !may_read(method, template) => {
                let detail = "this token may only read: use the one of KUBELEET_TOKEN";
                Err(ApiProblem::new(ProblemKind::ReadOnly, detail))
            }
            _ => Ok(()),
        }
    }

    /// Always compares both tokens, in constant time.
    fn role(&self, headers: &HeaderMap) -> Result<Role, ApiProblem> {
        let digest = given_token(headers)?;
        let is = |token: &Option<[u8; 32]>| token.is_some_and(|token| bool::from(digest.ct_eq(&token)));
        match (is(&self.token), is(&self.read_token)) {
            (true, _) => Ok(Role::Operator),
            (false, true) => Ok(Role::Reader),
            (false, false) => {
                let detail = "the token differs from the KUBELEET_TOKEN of this API";
                Err(ApiProblem::new(ProblemKind::Unauthorized, detail))
            }
        }
    }
}

pub(crate) async fn require_access(
    State(access): State<Arc<AccessControl>>,
    request: Request,
    next: Next,
) -> Response {
    let template = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    match access.check(request.method(), request.uri(), template, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

pub(crate) fn is_public(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/openapi.json" | "/docs" | "/problems" | "/schema/service")
        || path.starts_with("/docs/")
        || path.starts_with("/problems/")
}

/// Routes whose `GET` accepts the read-only token. Not listed: channels into pods, and backups with encrypted
/// secrets.
const READABLE: &[&str] = &[
    "/",
    "/cluster/check",
    "/config",
    "/config/{name}",
    "/event",
    "/log",
    "/metrics",
    "/node",
    "/node/{name}",
    "/node/{name}/drain",
    "/node/{name}/stats",
    "/pod",
    "/pod/{uuid}",
    "/pod/{uuid}/log",
    "/pod/{uuid}/stats",
    "/pod/{uuid}/why",
    "/queue",
    "/queue/dq",
    "/queue/{key}",
    "/registry",
    "/registry/{host}",
    "/route",
    "/secret",
    "/secret/{name}",
    "/service",
    "/service/{name}",
    "/service/{name}/history",
    "/service/{name}/results",
    "/stats",
    "/status",
    "/volume",
    "/volume/{name}",
];

/// Takes a body, and changes nothing.
const PLAN: &str = "/plan";

fn may_read(method: &Method, template: Option<&str>) -> bool {
    let Some(route) = template else { return false };
    match *method {
        Method::GET | Method::HEAD => READABLE.contains(&route),
        Method::POST => route == PLAN,
        _ => false,
    }
}

fn given_token(headers: &HeaderMap) -> Result<[u8; 32], ApiProblem> {
    let advice = "send the header `Authorization: Bearer <token>` with the token of KUBELEET_TOKEN";
    let Some(header) = headers.get(AUTHORIZATION) else {
        return Err(ApiProblem::new(ProblemKind::Unauthorized, advice));
    };
    let given = bearer(header.as_bytes()).ok_or_else(|| {
        let detail = format!("the header Authorization is not a bearer token: {advice}");
        ApiProblem::new(ProblemKind::Unauthorized, detail)
    })?;
    Ok(Sha256::digest(given).into())
}

fn bearer(header: &[u8]) -> Option<&[u8]> {
    let space = header.iter().position(|byte| *byte == b' ')?;
    let (scheme, token) = header.split_at(space);
    scheme.eq_ignore_ascii_case(b"bearer").then(|| token.trim_ascii())
}

fn check_origin(uri: &Uri, headers: &HeaderMap) -> Result<(), ApiProblem> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(HOST).or_else(|| uri.authority().map(|authority| authority.as_str()));
    if let Some(host) = host
        && !is_local_name(host)
    {
        let detail = "without KUBELEET_TOKEN the API answers requests to `localhost` or an IP address only, \
                      not to other host names";
        return Err(ApiProblem::new(ProblemKind::CrossOrigin, detail));
    }
    match text(ORIGIN) {
        Some(origin) if origin.split_once("://").map(|(_, site)| site) != host => {
            let detail = "without KUBELEET_TOKEN web pages of other sites are not allowed to use the API";
            Err(ApiProblem::new(ProblemKind::CrossOrigin, detail))
        }
        _ => Ok(()),
    }
}

/// The owner of any name but `localhost` can rebind it.
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

    fn status(access: &AccessControl, path: &str, headers: Headers) -> u16 {
        status_of(access, &Method::GET, path, path, headers)
    }

    fn status_of(
        access: &AccessControl,
        method: &Method,
        path: &str,
        template: &str,
        headers: Headers,
    ) -> u16 {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let checked = access.check(method, &path.parse().unwrap(), Some(template), &headers.collect());
        checked.map_or_else(|problem| problem.kind.status().as_u16(), |()| 200)
    }

    #[test]
    fn a_configured_token_is_required_and_sufficient() {
        let access = AccessControl::new(Some(&Secret::new("s3cret")), None);
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
            ("/problems", &[], 200),
            ("/problems/unauthorized", &[], 200),
            ("/schema/service", &[], 200),
            ("/docsx", &[], 401),
        ];
        for (path, headers, expected) in table {
            assert_eq!(status(&access, path, headers), *expected, "{path} {headers:?}");
        }
    }

    #[test]
    fn a_token_that_may_only_read_changes_nothing_and_reaches_no_pod() {
        let access = AccessControl::new(Some(&Secret::new("all")), Some(&Secret::new("read")));
        let (operator, reader): (Headers, Headers) =
            (&[("authorization", "Bearer all")], &[("authorization", "Bearer read")]);
        let table = [
            (Method::GET, "/service", 200),
            (Method::HEAD, "/pod/{uuid}", 200),
            (Method::GET, "/pod/{uuid}/log", 200),
            (Method::GET, "/pod/{uuid}/channel", 403),
            (Method::GET, "/cluster/backup", 403),
            (Method::GET, "/a-route-of-tomorrow", 403),
            (Method::POST, "/service", 403),
            (Method::POST, "/plan", 200),
            (Method::DELETE, "/plan", 403),
            (Method::PUT, "/service/{name}", 403),
            (Method::DELETE, "/pod/{uuid}", 403),
            (Method::OPTIONS, "/service", 403),
        ];
        for (method, template, expected) in table {
            assert_eq!(status_of(&access, &method, "/x", template, reader), expected, "{method} {template}");
            assert_eq!(status_of(&access, &method, "/x", template, operator), 200, "{method} {template}");
            assert_eq!(status_of(&access, &method, "/x", template, &[("authorization", "Bearer x")]), 401);
        }
    }

    #[test]
    fn the_reading_token_gets_the_routes_that_are_listed_and_each_other_one_is_refused_on_purpose() {
        let (_, document) = crate::routes::routes().split_for_parts();
        let refused = ["/cluster/backup", "/pod/{uuid}/channel"];
        let mut readable = Vec::new();
        for (path, _) in document.paths.paths.iter().filter(|(_, item)| item.get.is_some()) {
            let listed = READABLE.contains(&path.as_str());
            let decided = listed || is_public(path) || refused.contains(&path.as_str());
            assert!(
                decided,
                "{path}: list it in READABLE, or here if a token that may only read must not get it"
            );
            assert!(!(listed && refused.contains(&path.as_str())), "{path}");
            readable.extend(listed.then_some(path.as_str()));
        }
        let gone: Vec<_> = READABLE.iter().filter(|route| !readable.contains(route)).collect();
        assert!(gone.is_empty(), "READABLE names routes that do not exist: {gone:?}");
    }

    #[test]
    fn without_a_token_pages_of_other_sites_are_refused() {
        let access = AccessControl::new(None, None);
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
            assert_eq!(status(&access, "/service", headers), *expected, "{headers:?}");
        }
    }
}
