//! Everything that can go wrong, as HTTP says it: RFC 9457 problem details. The only mapping from errors to HTTP.
//!
//! Handlers return an [`ApiProblem`]; [`rendered`] writes the body, because only there are the path and the request's id
//! known. What axum answers by itself (405, 413, bad paths) is put into the same form there.

use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use common::spec::Violation;
use common::store::StoreError;

use crate::dto::{FieldProblem, Problem};

/// The media type of RFC 9457.
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// Seconds after which a client may try again when Redis is away: about what a failover takes.
const RETRY_SECONDS: &str = "2";

macro_rules! kinds {
    ($($kind:ident = $slug:literal, $status:ident, $title:literal;)*) => {
        /// A kind of problem. `docs/PROBLEMS.md` says for each what it means and what to do.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Kind {
            $(#[doc = $title] $kind,)*
        }

        impl Kind {
            /// All kinds.
            #[cfg(test)]
            pub(crate) const ALL: &[Kind] = &[$(Kind::$kind),*];

            /// Stable name of the kind: a URI reference relative to the API.
            pub(crate) fn slug(self) -> &'static str {
                match self { $(Kind::$kind => concat!("/problems/", $slug),)* }
            }

            /// The HTTP status it comes with.
            pub(crate) fn status(self) -> StatusCode {
                match self { $(Kind::$kind => StatusCode::$status,)* }
            }

            /// The kind in words.
            pub(crate) fn title(self) -> &'static str {
                match self { $(Kind::$kind => $title,)* }
            }
        }
    };
}

kinds! {
    BadRequest = "bad-request", BAD_REQUEST, "The request can not be read";
    MalformedBody = "malformed-body", BAD_REQUEST, "The body is not what it says it is";
    InvalidBody = "invalid-body", BAD_REQUEST, "The body has other fields than it should";
    InvalidQuery = "invalid-query", BAD_REQUEST, "The query can not be read";
    InvalidService = "invalid-service", UNPROCESSABLE_ENTITY, "The service can not be meant";
    Unauthorized = "unauthorized", UNAUTHORIZED, "A bearer token is required";
    CrossOrigin = "cross-origin", FORBIDDEN, "Another site's page may not use this API";
    RouteNotFound = "route-not-found", NOT_FOUND, "There is no such route";
    ServiceNotFound = "service-not-found", NOT_FOUND, "There is no such service";
    PodNotFound = "pod-not-found", NOT_FOUND, "There is no such pod";
    NodeNotFound = "node-not-found", NOT_FOUND, "There is no such node";
    QueueNotFound = "queue-not-found", NOT_FOUND, "There is no such queue";
    LetterNotFound = "letter-not-found", NOT_FOUND, "There is no such dead letter";
    MethodNotAllowed = "method-not-allowed", METHOD_NOT_ALLOWED, "The route has no such method";
    RequestTimeout = "request-timeout", REQUEST_TIMEOUT, "The request took too long to arrive";
    ServiceExists = "service-exists", CONFLICT, "The service exists";
    ServiceDeleting = "service-deleting", CONFLICT, "The service is being deleted";
    ServiceBusy = "service-busy", CONFLICT, "Others keep changing this";
    PodOnNoNode = "pod-on-no-node", CONFLICT, "The pod is on no node";
    GenerationConflict = "generation-conflict", PRECONDITION_FAILED, "The service was changed meanwhile";
    BodyTooLarge = "body-too-large", PAYLOAD_TOO_LARGE, "The body is too large";
    UnsupportedMediaType = "unsupported-media-type", UNSUPPORTED_MEDIA_TYPE, "The body is neither JSON nor YAML";
    Internal = "internal", INTERNAL_SERVER_ERROR, "Something went wrong that is not your fault";
    LogUnavailable = "log-unavailable", BAD_GATEWAY, "The node could not read the log";
    RedisUnavailable = "redis-unavailable", SERVICE_UNAVAILABLE, "Redis is away";
    NodeSilent = "node-silent", GATEWAY_TIMEOUT, "The node does not answer";
    Timeout = "timeout", GATEWAY_TIMEOUT, "It took too long";
}

/// A problem on its way to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiProblem {
    /// What kind.
    pub(crate) kind: Kind,
    /// This very problem in words, and what to do next.
    pub(crate) detail: String,
    /// Which fields are wrong.
    pub(crate) errors: Vec<FieldProblem>,
}

impl ApiProblem {
    /// A problem of this kind.
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), errors: Vec::new() }
    }

    /// With one field that is wrong.
    pub(crate) fn at(mut self, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        self.errors.push(FieldProblem { pointer: pointer.into(), detail: detail.into() });
        self
    }

    /// Something that should not happen. The cause belongs into the log, not here.
    pub(crate) fn internal() -> Self {
        Self::new(Kind::Internal, "look for the request's id in the log of the API")
    }

    /// The word for a status that axum gave by itself.
    fn of_status(status: StatusCode) -> Self {
        match status {
            StatusCode::METHOD_NOT_ALLOWED => {
                Self::new(Kind::MethodNotAllowed, "the header Allow lists the methods there are")
            }
            StatusCode::NOT_FOUND => Self::new(Kind::RouteNotFound, "GET / lists the routes"),
            StatusCode::PAYLOAD_TOO_LARGE => Self::new(Kind::BodyTooLarge, "at most 1 MiB"),
            status if status.is_client_error() => {
                Self::new(Kind::BadRequest, "the path or a header of the request can not be read")
            }
            _ => Self::internal(),
        }
    }

    /// The whole, as it is sent.
    fn into_problem(self, path: &str, request_id: &str) -> Problem {
        Problem {
            kind: self.kind.slug().to_owned(),
            title: self.kind.title().to_owned(),
            status: self.kind.status().as_u16(),
            detail: self.detail,
            instance: path.to_owned(),
            request_id: request_id.to_owned(),
            errors: self.errors,
        }
    }
}

impl From<StoreError> for ApiProblem {
    fn from(error: StoreError) -> Self {
        if error.is_transient() {
            tracing::debug!(%error, "Redis is away");
            return Self::new(Kind::RedisUnavailable, format!("{error}. Repeating the request is safe"));
        }
        // Somebody's data or configuration is broken: a person has to look, and only the log says where.
        tracing::error!(%error, "the store failed");
        Self::internal()
    }
}

impl From<Vec<Violation>> for ApiProblem {
    fn from(violations: Vec<Violation>) -> Self {
        let detail = match violations.as_slice() {
            [only] => format!("{}: {}", only.pointer, only.detail),
            many => format!("{} fields have values that can not be meant", many.len()),
        };
        let errors = violations.into_iter().map(|v| FieldProblem { pointer: v.pointer, detail: v.detail });
        Self { kind: Kind::InvalidService, detail, errors: errors.collect() }
    }
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response {
        let mut response = self.kind.status().into_response();
        let headers = response.headers_mut();
        if self.kind == Kind::RedisUnavailable {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
        }
        if self.kind == Kind::Unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"kubeleet\""));
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// Gives an answer that is an error its body. Others pass as they are.
pub(crate) fn rendered(mut response: Response, path: &str, request_id: &str) -> Response {
    let status = response.status();
    let problem = response.extensions_mut().remove::<ApiProblem>();
    let problem = match problem {
        Some(problem) => problem,
        None if status.is_client_error() || status.is_server_error() => ApiProblem::of_status(status),
        None => return response,
    };
    let (mut parts, _) = response.into_parts();
    parts.status = problem.kind.status();
    let body = serde_json::to_vec(&problem.into_problem(path, request_id))
        .expect("a problem of texts and numbers serializes");
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_documented() {
        let text = include_str!("../../docs/PROBLEMS.md");
        for kind in Kind::ALL {
            let heading = format!("## `{}`", kind.slug());
            assert!(text.contains(&heading), "docs/PROBLEMS.md lacks {heading}");
            let status = format!("{}", kind.status().as_u16());
            let section = text.split(&heading).nth(1).unwrap_or_default();
            assert!(section.lines().next().unwrap_or_default().contains(&status), "{heading} is a {status}");
        }
        assert_eq!(text.matches("\n## `/problems/").count(), Kind::ALL.len(), "one that does not exist");
    }

    #[test]
    fn a_store_error_becomes_503_only_when_it_passes() {
        let away = ApiProblem::from(StoreError::NotMaster);
        assert_eq!((away.kind, away.into_response().status().as_u16()), (Kind::RedisUnavailable, 503));
        let broken = ApiProblem::from(StoreError::WrongType { detail: "WRONGTYPE secret".into() });
        assert_eq!(broken.kind, Kind::Internal);
        assert!(!broken.detail.contains("secret"));
    }

    #[test]
    fn what_axum_says_keeps_its_headers() {
        let mut response = StatusCode::METHOD_NOT_ALLOWED.into_response();
        response.headers_mut().insert("allow", HeaderValue::from_static("GET"));
        let response = rendered(response, "/x", "id");
        assert_eq!(response.headers()["allow"], "GET");
        assert_eq!(response.headers()["content-type"], PROBLEM_JSON);
    }
}
