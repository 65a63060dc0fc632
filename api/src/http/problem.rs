//! Errors as HTTP responses: RFC 9457 problem details. [`render`] writes the body, because only it knows the
//! path and the request id; errors from axum and tower get the same form there.

use std::time::Duration;

use api_types::{FieldProblem, NodeShortage, Problem};
use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use model::broken_key::BrokenKey;
use model::ids::ServiceName;
use model::spec::Violation;
use store::{RedisKey, StoreError};

pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// About the duration of a failover.
const RETRY_AFTER_SECONDS: &str = "2";

const MAX_NODES: usize = 20;

/// Until an answer begins. Streams may last longer.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

macro_rules! kinds {
    ($($kind:ident = $slug:literal, $status:ident, $title:literal;)*) => {
        /// `docs/reference/problems.md` explains each one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum ProblemKind {
            $(#[doc = $title] $kind,)*
        }

        impl ProblemKind {
            #[cfg(test)]
            pub(crate) const ALL: &[ProblemKind] = &[$(ProblemKind::$kind),*];

            /// Stable: relative to the API, where the problem is documented.
            pub(crate) fn uri(self) -> &'static str {
                match self { $(ProblemKind::$kind => concat!("/problems/", $slug),)* }
            }

            pub(crate) fn status(self) -> StatusCode {
                match self { $(ProblemKind::$kind => StatusCode::$status,)* }
            }

            pub(crate) fn title(self) -> &'static str {
                match self { $(ProblemKind::$kind => $title,)* }
            }
        }
    };
}

kinds! {
    BadRequest = "bad-request", BAD_REQUEST, "Bad request";
    MalformedBody = "malformed-body", BAD_REQUEST, "Malformed body";
    InvalidBody = "invalid-body", BAD_REQUEST, "Invalid body";
    InvalidQuery = "invalid-query", BAD_REQUEST, "Invalid query";
    InvalidService = "invalid-service", UNPROCESSABLE_ENTITY, "Invalid service";
    InvalidPayload = "invalid-payload", UNPROCESSABLE_ENTITY, "Invalid payload";
    InvalidValue = "invalid-value", UNPROCESSABLE_ENTITY, "Invalid secret or config";
    InvalidPlan = "invalid-plan", UNPROCESSABLE_ENTITY, "Invalid plan";
    PlanTooLarge = "plan-too-large", UNPROCESSABLE_ENTITY, "Cluster too large to plan";
    InvalidLabels = "invalid-labels", UNPROCESSABLE_ENTITY, "Invalid labels of a node";
    Unauthorized = "unauthorized", UNAUTHORIZED, "Unauthorized";
    CrossOrigin = "cross-origin", FORBIDDEN, "Cross-origin request refused";
    ReadOnly = "read-only", FORBIDDEN, "Token may only read";
    RouteNotFound = "route-not-found", NOT_FOUND, "Route not found";
    ServiceNotFound = "service-not-found", NOT_FOUND, "Service not found";
    PodNotFound = "pod-not-found", NOT_FOUND, "Pod not found";
    NodeNotFound = "node-not-found", NOT_FOUND, "Node not found";
    ValueNotFound = "value-not-found", NOT_FOUND, "Secret or config not found";
    RegistryNotFound = "registry-not-found", NOT_FOUND, "Login for a registry not found";
    QueueNotFound = "queue-not-found", NOT_FOUND, "Queue not found";
    DeadLetterNotFound = "letter-not-found", NOT_FOUND, "Dead letter not found";
    VolumeNotFound = "volume-not-found", NOT_FOUND, "Volume not found";
    MethodNotAllowed = "method-not-allowed", METHOD_NOT_ALLOWED, "Method not allowed";
    BodyTimeout = "request-timeout", REQUEST_TIMEOUT, "Request body timed out";
    ServiceExists = "service-exists", CONFLICT, "Service already exists";
    AppLocked = "app-locked", CONFLICT, "App is being changed";
    ServiceDeleting = "service-deleting", CONFLICT, "Service is being deleted";
    ConcurrentModification = "service-busy", CONFLICT, "Concurrent modification";
    WrongKind = "wrong-kind", CONFLICT, "Not for this kind of service";
    JobImmutable = "job-immutable", CONFLICT, "A job does not change";
    ValueExists = "value-exists", CONFLICT, "Secret or config already exists";
    SecretKeyMissing = "secret-key-missing", CONFLICT, "No key for secrets";
    OtherSecretKey = "other-secret-key", CONFLICT, "Another key for secrets";
    PodNotAssigned = "pod-on-no-node", CONFLICT, "Pod is not on a node";
    DeadLetterConflict = "dead-letter-conflict", CONFLICT, "Dead letter cannot be requeued";
    NodeInUse = "node-in-use", CONFLICT, "Node is in use";
    InsufficientMemory = "insufficient-memory", CONFLICT, "Insufficient memory";
    InsufficientCpu = "insufficient-cpu", CONFLICT, "Insufficient CPU";
    InsufficientPids = "insufficient-pids", CONFLICT, "Insufficient processes";
    InsufficientSlots = "insufficient-slots", CONFLICT, "Too many pods";
    InsufficientDisk = "insufficient-disk", CONFLICT, "Insufficient disk";
    InsufficientPorts = "insufficient-ports", CONFLICT, "Insufficient host ports";
    NotAllowed = "insufficient-permission", CONFLICT, "Not allowed on any node";
    PlacementImpossible = "placement-impossible", CONFLICT, "No node satisfies the rules";
    UpgradeIncomplete = "upgrade-incomplete", CONFLICT, "An older scheduler is running";
    NothingToUndo = "nothing-to-undo", CONFLICT, "Nothing to undo";
    RouteTaken = "route-taken", CONFLICT, "Route is taken";
    VolumeInUse = "volume-in-use", CONFLICT, "Volume is in use";
    ObjectInUse = "in-use", CONFLICT, "Used by services";
    OtherCluster = "other-cluster", CONFLICT, "Another cluster";
    RevisionConflict = "generation-conflict", PRECONDITION_FAILED, "Revision conflict";
    BodyTooLarge = "body-too-large", PAYLOAD_TOO_LARGE, "Body too large";
    UnsupportedMediaType = "unsupported-media-type", UNSUPPORTED_MEDIA_TYPE, "Unsupported media type";
    ClusterLimit = "cluster-limit", FORBIDDEN, "Cluster limit reached";
    PlanBusy = "plan-busy", TOO_MANY_REQUESTS, "Another plan is being made";
    TooManyStreams = "too-many-streams", TOO_MANY_REQUESTS, "Too many streams";
    BrokenRecord = "broken-record", INTERNAL_SERVER_ERROR, "Broken record";
    Internal = "internal", INTERNAL_SERVER_ERROR, "Internal error";
    LogUnavailable = "log-unavailable", BAD_GATEWAY, "Log unavailable";
    NodeFailed = "node-failed", BAD_GATEWAY, "Node failed";
    RedisUnavailable = "redis-unavailable", SERVICE_UNAVAILABLE, "Redis unavailable";
    RedisMemory = "redis-memory", INSUFFICIENT_STORAGE, "Redis is full";
    NodeNotResponding = "node-silent", GATEWAY_TIMEOUT, "Node not responding";
    Timeout = "timeout", GATEWAY_TIMEOUT, "Request timed out";
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiProblem {
    pub(crate) kind: ProblemKind,
    pub(crate) detail: String,
    pub(crate) errors: Vec<FieldProblem>,
    shortage: Option<Box<ShortageMembers>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShortageMembers {
    pub(crate) service: ServiceName,
    pub(crate) required: u64,
    pub(crate) allocatable: u64,
    pub(crate) nodes: Vec<NodeShortage>,
}

impl ApiProblem {
    pub(crate) fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), errors: Vec::new(), shortage: None }
    }

    pub(crate) fn with_shortage(self, shortage: ShortageMembers) -> Self {
        Self { shortage: Some(Box::new(shortage)), ..self }
    }

    pub(crate) fn at(mut self, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        self.errors.push(FieldProblem { pointer: pointer.into(), detail: detail.into() });
        self
    }

    pub(crate) fn of_key(error: StoreError, key: RedisKey<'_>) -> Self {
        if !error.is_broken_key() {
            return error.into();
        }
        tracing::debug!(%error, "a request named an object that cannot be read");
        let BrokenKey { key, problem } = key.broken(&error);
        Self::new(
            ProblemKind::BrokenRecord,
            format!("the key {key} in Redis cannot be read: {problem}; fix it with redis-cli, or DEL it"),
        )
    }

    pub(crate) fn no_secret_key() -> Self {
        Self::new(
            ProblemKind::SecretKeyMissing,
            "this API has no key for secrets and certificates: write one with `kubeleet secret key > FILE`, give it to \
             all APIs, workers and proxies, set their KUBELEET_SECRET_KEY_FILE, and start them again",
        )
    }

    pub(crate) fn internal() -> Self {
        Self::new(ProblemKind::Internal, "the log of the API has the cause under the request id")
    }

    /// For a status that a library answered without a body.
    fn from_status(status: StatusCode) -> Self {
        match status {
            StatusCode::METHOD_NOT_ALLOWED => {
                Self::new(ProblemKind::MethodNotAllowed, "the header Allow lists the methods of this path")
            }
            StatusCode::NOT_FOUND => Self::route_not_found(),
            StatusCode::PAYLOAD_TOO_LARGE => Self::new(ProblemKind::BodyTooLarge, "a body is at most 1 MiB"),
            StatusCode::GATEWAY_TIMEOUT => Self::timeout(),
            status if status.is_client_error() => {
                Self::new(ProblemKind::BadRequest, "the path or a header of the request is invalid")
            }
            _ => Self::internal(),
        }
    }

    pub(crate) fn route_not_found() -> Self {
        Self::new(ProblemKind::RouteNotFound, "no route has this path; GET / lists the routes")
    }

    fn timeout() -> Self {
        let limit = REQUEST_TIMEOUT.as_secs();
        Self::new(ProblemKind::Timeout, format!("no answer within {limit} s"))
    }

    fn into_problem(self, path: &str, request_id: &str) -> Problem {
        let problem = Problem {
            kind: self.kind.uri().to_owned(),
            title: self.kind.title().to_owned(),
            status: self.kind.status().as_u16(),
            detail: self.detail,
            instance: path.to_owned(),
            request_id: request_id.to_owned(),
            errors: self.errors,
            ..Problem::default()
        };
        let Some(mut shortage) = self.shortage else { return problem };
        let node_count = shortage.nodes.len();
        shortage.nodes.truncate(MAX_NODES);
        Problem {
            service: Some(shortage.service.to_string()),
            required: Some(shortage.required),
            allocatable: Some(shortage.allocatable),
            nodes: shortage.nodes,
            node_count: Some(node_count),
            ..problem
        }
    }
}

impl From<StoreError> for ApiProblem {
    fn from(error: StoreError) -> Self {
        if error.is_out_of_memory() {
            let detail = "Redis uses all of its maxmemory and takes nothing more; nothing was changed. \
            Delete or scale down services, which works all the same, or raise maxmemory; GET /status \
                          has the numbers";
            return Self::new(ProblemKind::RedisMemory, detail);
        }
        if error.is_transient() {
            tracing::debug!(%error, "Redis is unavailable");
            return Self::new(ProblemKind::RedisUnavailable, error.to_string());
        }
        // Stored data is broken: an operator must act, and only the log names the place.
        tracing::error!(%error, "a request failed in the store");
        Self::internal()
    }
}

impl From<Vec<Violation>> for ApiProblem {
    fn from(violations: Vec<Violation>) -> Self {
        let detail = match violations.as_slice() {
            [only] => format!("{}: {}", only.pointer, only.detail),
            many => format!("{} fields have invalid values", many.len()),
        };
        let errors = violations.into_iter().map(|v| FieldProblem { pointer: v.pointer, detail: v.detail });
        Self { errors: errors.collect(), ..Self::new(ProblemKind::InvalidService, detail) }
    }
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response {
        let mut response = self.kind.status().into_response();
        let headers = response.headers_mut();
        if self.kind == ProblemKind::RedisUnavailable {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
        }
        if self.kind == ProblemKind::Unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"kubeleet\""));
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// The request may have been carried out.
pub(crate) fn retry_advice(method: &str) -> &'static str {
    match method {
        "GET" | "HEAD" => "try again",
        "PUT" | "PATCH" | "DELETE" => {
            "the change may or may not have been stored; the request can be repeated"
        }
        // A repeated POST ends in a conflict, or as the first time.
        _ => {
            "the change may or may not have been stored; the request can be repeated, but undo and restart only with \
             If-Match, run only with `job`"
        }
    }
}

pub(crate) fn render(mut response: Response, method: &str, path: &str, request_id: &str) -> Response {
    let status = response.status();
    let problem = response.extensions_mut().remove::<ApiProblem>();
    let mut problem = match problem {
        Some(problem) => problem,
        None if status.is_client_error() || status.is_server_error() => ApiProblem::from_status(status),
        None => return response,
    };
    if matches!(problem.kind, ProblemKind::RedisUnavailable | ProblemKind::Timeout) {
        problem.detail = format!("{}; {}", problem.detail, retry_advice(method));
    }
    let (mut parts, _) = response.into_parts();
    parts.status = problem.kind.status();
    let body = serde_json::to_vec(&problem.into_problem(path, request_id))
        .expect("a problem of strings and numbers serializes");
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_type_is_documented() {
        let text = include_str!("../../../docs/reference/problems.md");
        for kind in ProblemKind::ALL {
            let heading = format!("## `{}`", kind.uri());
            assert!(text.contains(&heading), "docs/reference/problems.md lacks {heading}");
            let status = format!("{}", kind.status().as_u16());
            let section = text.split(&heading).nth(1).unwrap_or_default();
            let line = section.lines().next().unwrap_or_default();
            assert!(line.contains(&status), "{heading} is a {status}");
            assert!(line.contains(kind.title()), "{heading} has the title {}", kind.title());
        }
        let documented = text.matches("\n## `/problems/").count();
        assert_eq!(documented, ProblemKind::ALL.len(), "a section for a type that does not exist");
    }

    #[test]
    fn an_error_of_redis_as_a_whole_becomes_503() {
        let transient = ApiProblem::from(StoreError::NotMaster);
        let kind = transient.kind;
        assert_eq!((kind, transient.into_response().status().as_u16()), (ProblemKind::RedisUnavailable, 503));
        for text in ["NOAUTH Authentication required.", "NOPERM this user has no permissions", "CROSSSLOT x"]
        {
            let refused = ApiProblem::from(StoreError::Refused(text.into()));
            assert_eq!(refused.kind, ProblemKind::RedisUnavailable, "{text}");
        }
        let full = ApiProblem::from(StoreError::Refused("OOM command not allowed".into()));
        assert_eq!((full.kind, full.kind.status().as_u16()), (ProblemKind::RedisMemory, 507));
        let broken = ApiProblem::from(StoreError::WrongType { detail: "WRONGTYPE secret".into() });
        assert_eq!(broken.kind, ProblemKind::Internal);
        assert!(!broken.detail.contains("secret"));
    }

    #[test]
    fn an_error_of_axum_keeps_its_headers() {
        let mut response = StatusCode::METHOD_NOT_ALLOWED.into_response();
        response.headers_mut().insert("allow", HeaderValue::from_static("GET"));
        let response = render(response, "GET", "/x", "id");
        assert_eq!(response.headers()["allow"], "GET");
        assert_eq!(response.headers()["content-type"], PROBLEM_JSON);
    }
}
