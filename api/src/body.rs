//! Request bodies: JSON or YAML read into one type, with errors that point at the field.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use common::json_pointer::escape;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_path_to_error::{Path, Segment};

use crate::problem::{ApiProblem, ProblemKind};

/// The largest body that is read, in bytes.
pub(crate) const MAX_BODY_SIZE: usize = 1024 * 1024;
/// The time within which a body must arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// A request body that was read into `T`.
pub(crate) struct JsonOrYaml<T>(pub(crate) T);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Yaml,
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonOrYaml<T> {
    type Rejection = ApiProblem;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiProblem> {
        let format = format_of(request.headers())?;
        let bytes = read_bytes(request, state, "a body is at most 1 MiB").await?;
        match format {
            Format::Json => read_json(&bytes).map(JsonOrYaml),
            Format::Yaml => read_yaml(&bytes).map(JsonOrYaml),
        }
    }
}

/// Reads a whole body. `too_large` is the detail of the problem if it is larger than its route allows.
///
/// # Errors
/// `BodyTooLarge`, `BodyTimeout`, or `BadRequest` if the connection breaks.
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

/// The format that the content type names. Without one, and with the form type that `curl -d` sends, it is
/// JSON.
fn format_of(headers: &HeaderMap) -> Result<Format, ApiProblem> {
    let Some(header) = headers.get(CONTENT_TYPE) else { return Ok(Format::Json) };
    let text = header.to_str().unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        ""
        | "application/json"
        | "text/json"
        | "application/merge-patch+json"
        | "application/x-www-form-urlencoded" => Ok(Format::Json),
        "application/yaml" | "application/x-yaml" | "text/yaml" | "text/x-yaml" => Ok(Format::Yaml),
        other => {
            let detail = format!("{other:?} is not supported: send application/json or application/yaml");
            Err(ApiProblem::new(ProblemKind::UnsupportedMediaType, detail))
        }
    }
}

/// Reads JSON.
///
/// # Errors
/// `MalformedBody` for a syntax error, `InvalidBody` for a field that does not fit `T`.
pub(crate) fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiProblem> {
    match bytes.trim_ascii().first() {
        None => return Err(ApiProblem::new(ProblemKind::MalformedBody, "the body is empty")),
        // serde would read a list as the fields in their order of declaration.
        Some(b'[') if serde_json::from_slice::<IgnoredAny>(bytes).is_ok() => {
            return Err(invalid_field(String::new(), "a list was given, an object is expected".to_owned()));
        }
        Some(_) => {}
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let pointer = pointer_to(error.path());
        let inner = error.into_inner();
        if inner.is_data() {
            invalid_field(pointer, inner.to_string())
        } else {
            ApiProblem::new(ProblemKind::MalformedBody, format!("the body is not JSON: {inner}"))
        }
    })?;
    reader.end().map_err(|error| {
        let detail = format!("the body continues after the JSON value: {error}");
        ApiProblem::new(ProblemKind::MalformedBody, detail)
    })?;
    Ok(value)
}

/// Reads a JSON value that is not a request body as it was sent, such as a patched document.
///
/// # Errors
/// `InvalidBody` for a field that does not fit `T`.
pub(crate) fn read_value<T: DeserializeOwned>(value: serde_json::Value) -> Result<T, ApiProblem> {
    serde_path_to_error::deserialize(value)
        .map_err(|error| invalid_field(pointer_to(error.path()), error.into_inner().to_string()))
}

/// Reads one YAML document. The parser's own budget bounds aliases and nesting.
fn read_yaml<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiProblem> {
    let mut pointer = None;
    // YAML 1.2, and what people mean: only `true` and `false` are no text. Otherwise `y` in a command is refused.
    let options = serde_saphyr::options! { strict_booleans: true };
    let read = serde_saphyr::with_deserializer_from_slice_with_options(bytes, options, |reader| {
        serde_path_to_error::deserialize(reader).map_err(|error| {
            pointer = Some(pointer_to(error.path()));
            error.into_inner()
        })
    });
    read.map_err(|error| {
        // The excerpt that the error can carry would repeat secrets of the environment.
        let error = error.without_snippet();
        let location = error.location().map(|at| format!(" (line {}, column {})", at.line(), at.column()));
        let message = error.to_string();
        let text = match location {
            Some(location) if !message.contains("line ") => message + &location,
            _ => message,
        };
        match pointer {
            Some(pointer) if serde_saphyr::from_slice::<IgnoredAny>(bytes).is_ok() => {
                invalid_field(pointer, text)
            }
            _ => {
                let detail = format!("the body is not one YAML document: {text}");
                ApiProblem::new(ProblemKind::MalformedBody, detail)
            }
        }
    })
}

fn invalid_field(mut pointer: String, detail: String) -> ApiProblem {
    // For a field that is missing or repeated, serde points at the object; its message names the field.
    if let Some(field) = field_named(&detail) {
        pointer = format!("{pointer}/{}", escape(field));
    }
    let subject = if pointer.is_empty() { "the body" } else { pointer.as_str() };
    ApiProblem::new(ProblemKind::InvalidBody, format!("{subject}: {detail}")).at(pointer, detail)
}

fn field_named(detail: &str) -> Option<&str> {
    let rest = ["missing field `", "duplicate field `"].iter().find_map(|start| detail.split_once(start));
    rest?.1.split_once('`').map(|(field, _)| field)
}

fn pointer_to(path: &Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
            Segment::Map { key } => pointer.push_str(&format!("/{}", escape(key))),
            // These have no step in the document.
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    pointer
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use common::spec::ServiceInput;

    use super::*;

    #[test]
    fn the_content_type_selects_the_format() {
        let format = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, text.parse().unwrap());
            format_of(&headers).ok()
        };
        assert_eq!(format_of(&HeaderMap::new()), Ok(Format::Json));
        for json in
            ["application/json", "application/json; charset=utf-8", "application/x-www-form-urlencoded"]
        {
            assert_eq!(format(json), Some(Format::Json), "{json}");
        }
        for yaml in ["application/yaml", "Application/X-YAML", "text/yaml; charset=utf-8"] {
            assert_eq!(format(yaml), Some(Format::Yaml), "{yaml}");
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
