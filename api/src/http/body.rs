//! JSON and YAML request bodies, with errors that point at the field.

use std::time::Duration;

use api_types::{
    AppLockInput, BindVolumeInput, NodeLabelsPatch, PlanInput, RegistryInput, ScaleInput, ValueInput,
};
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use document::{self, DocumentNode, Reading, Vocabulary};
use model::spec::ServiceInput;
use serde_json::Value;

use crate::http::problem::{ApiProblem, ProblemKind};

pub(crate) const MAX_BODY_BYTES: usize = 1024 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct JsonOrYaml<T>(pub(crate) T);

pub(crate) trait Body: Sized {
    fn read(document: &DocumentNode) -> Reading<Self>;
}

impl Body for ServiceInput {
    fn read(document: &DocumentNode) -> Reading<Self> {
        Self::read(document)
    }
}

macro_rules! plain_bodies {
    ($($body:ty),*) => {$(
        impl Body for $body {
            fn read(document: &DocumentNode) -> Reading<Self> {
                document::read(document, Vocabulary::Fields)
            }
        }
    )*};
}

plain_bodies!(
    ScaleInput,
    AppLockInput,
    BindVolumeInput,
    NodeLabelsPatch,
    PlanInput,
    ValueInput,
    RegistryInput,
    Value
);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyFormat {
    Json,
    Yaml,
}

impl<T: Body, S: Send + Sync> FromRequest<S> for JsonOrYaml<T> {
    type Rejection = ApiProblem;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiProblem> {
        let format = format_of(request.headers())?;
        let bytes = read_bytes(request, state, "a body is at most 1 MiB").await?;
        match format {
            BodyFormat::Json => read_json(&bytes).map(JsonOrYaml),
            BodyFormat::Yaml => read_yaml(&bytes).map(JsonOrYaml),
        }
    }
}

/// `too_large` is the detail for a body above its route's limit.
pub(crate) async fn read_bytes<S: Send + Sync>(
    request: Request,
    state: &S,
    too_large: &str,
) -> Result<Bytes, ApiProblem> {
    match tokio::time::timeout(BODY_TIMEOUT, Bytes::from_request(request, state)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(rejection)) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            Err(ApiProblem::new(ProblemKind::BodyTooLarge, too_large))
        }
        Ok(Err(rejection)) => {
            drop(rejection.into_response());
            let detail = "the connection broke before the body was complete";
            Err(ApiProblem::new(ProblemKind::BadRequest, detail))
        }
        Err(_) => {
            let detail = format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs());
            Err(ApiProblem::new(ProblemKind::BodyTimeout, detail))
        }
    }
}

/// `curl -d` sends the form type.
fn format_of(headers: &HeaderMap) -> Result<BodyFormat, ApiProblem> {
    let Some(header) = headers.get(CONTENT_TYPE) else { return Ok(BodyFormat::Json) };
    let text = header.to_str().unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        ""
        | "application/json"
        | "text/json"
        | "application/merge-patch+json"
        | "application/x-www-form-urlencoded" => Ok(BodyFormat::Json),
        "application/yaml" | "application/x-yaml" | "text/yaml" | "text/x-yaml" => Ok(BodyFormat::Yaml),
        other => {
            let detail = format!("{other:?} is not supported: send application/json or application/yaml");
            Err(ApiProblem::new(ProblemKind::UnsupportedMediaType, detail))
        }
    }
}

fn read_json<T: Body>(bytes: &[u8]) -> Result<T, ApiProblem> {
    if bytes.trim_ascii().is_empty() {
        return Err(ApiProblem::new(ProblemKind::MalformedBody, "the body is empty"));
    }
    let document = document::json(bytes).map_err(|mistake| {
        ApiProblem::new(ProblemKind::MalformedBody, format!("the body is not JSON: {mistake}"))
    })?;
    read_document(&document)
}

/// For values such as a patched document.
pub(crate) fn read_value<T: Body>(value: &Value) -> Result<T, ApiProblem> {
    read_document(&DocumentNode::from(value))
}

fn read_yaml<T: Body>(bytes: &[u8]) -> Result<T, ApiProblem> {
    let malformed = |detail: String| ApiProblem::new(ProblemKind::MalformedBody, detail);
    let text = std::str::from_utf8(bytes).map_err(|_| malformed("the body is not UTF-8".to_owned()))?;
    let (documents, mistakes) = document::yaml(text);
    if let Some(mistake) = mistakes.first() {
        return Err(malformed(format!("the body is not YAML: {mistake}")));
    }
    match documents.as_slice() {
        [document] => read_document(document),
        [] => Err(malformed("the body is empty".to_owned())),
        many => Err(malformed(format!("the body has {} documents; send one per request", many.len()))),
    }
}

fn read_document<T: Body>(document: &DocumentNode) -> Result<T, ApiProblem> {
    T::read(document).into_result().map_err(|mistakes| {
        let detail = match mistakes.as_slice() {
            [only] => only.to_string(),
            many => format!("{} fields are invalid; the first: {}", many.len(), many[0]),
        };
        let problem = ApiProblem::new(ProblemKind::InvalidBody, detail);
        mistakes.into_iter().fold(problem, |problem, mistake| {
            let detail = mistake.to_string();
            problem.at(mistake.pointer, detail)
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn the_content_type_selects_the_format() {
        let format = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, text.parse().unwrap());
            format_of(&headers).ok()
        };
        assert_eq!(format_of(&HeaderMap::new()), Ok(BodyFormat::Json));
        for json in
            ["application/json", "application/json; charset=utf-8", "application/x-www-form-urlencoded"]
        {
            assert_eq!(format(json), Some(BodyFormat::Json), "{json}");
        }
        for yaml in ["application/yaml", "Application/X-YAML", "text/yaml; charset=utf-8"] {
            assert_eq!(format(yaml), Some(BodyFormat::Yaml), "{yaml}");
        }
        for neither in ["text/plain", "application/xml", "multipart/form-data; boundary=x"] {
            assert_eq!(format(neither), None, "{neither}");
        }
    }

    #[test]
    fn an_invalid_field_is_named_by_its_pointer() {
        let table = [
            (r#"{"image":"nginx"}"#, "/name"),
            (r#"{"name":"web","imagee":"nginx"}"#, "/imagee"),
            (r#"{"name":"web","a/b~c":1}"#, "/a~1b~0c"),
            (r#"{"name":"Web"}"#, "/name"),
            (r#"{"name":"web","replica":"three"}"#, "/replica"),
            (r#"{"name":"web","replica":-1}"#, "/replica"),
            (r#"{"name":"web","replica":1,"replicas":2}"#, "/replicas"),
            (r#"{"name":"web","memory":"much"}"#, "/memory"),
            (r#"{"name":"web","ports":[80,"x"]}"#, "/ports/1"),
            (r#"{"name":"web","containers":[{"image":"a"},{"imag":"b"}]}"#, "/containers/1/imag"),
            (r#"{"name":"web","containers":[{}]}"#, "/containers/0/image"),
            (r#"{"name":"web","restart":"sometimes"}"#, "/restart"),
            (r#"{"name":"web","labels":{"a":1}}"#, "/labels/a"),
            (r#"["web"]"#, ""),
            (r#""text""#, ""),
        ];
        for (json, pointer) in table {
            let problem = read_json::<ServiceInput>(json.as_bytes()).unwrap_err();
            assert_eq!(problem.kind, ProblemKind::InvalidBody, "{json}: {problem:?}");
            assert_eq!(problem.errors[0].pointer, pointer, "{json}: {problem:?}");
        }
    }

    #[test]
    fn a_yaml_error_has_pointer_and_line() {
        let problem = read_yaml::<ServiceInput>(b"name: web\nimage: nginx\nreplica: three\n").unwrap_err();
        assert_eq!(problem.kind, ProblemKind::InvalidBody);
        assert_eq!(problem.errors[0].pointer, "/replica", "{problem:?}");
        assert!(problem.detail.contains("line 3"), "{problem:?}");
        let broken = read_yaml::<ServiceInput>(b"name: [web\n").unwrap_err();
        assert_eq!(broken.kind, ProblemKind::MalformedBody, "{broken:?}");
        let two = read_yaml::<ServiceInput>(b"name: a\nimage: a\n---\nname: b\nimage: b\n").unwrap_err();
        assert_eq!(two.kind, ProblemKind::MalformedBody, "{two:?}");
    }

    #[test]
    fn an_error_does_not_repeat_secrets_of_the_body() {
        let yaml = b"name: web\nimage: nginx\nenvironment:\n  PASSWORD: hunter2\nreplica: three\n";
        let problem = read_yaml::<ServiceInput>(yaml).unwrap_err();
        assert!(!format!("{problem:?}").contains("hunter2"), "{problem:?}");
    }

    #[test]
    fn a_syntax_error_is_a_malformed_body() {
        for broken in ["", " ", "{", "nonsense", r#"{"name":"web"} x"#, "{\"name\":\"web\",}"] {
            let problem = read_json::<ServiceInput>(broken.as_bytes()).unwrap_err();
            assert_eq!(problem.kind, ProblemKind::MalformedBody, "{broken}: {problem:?}");
        }
    }
}
