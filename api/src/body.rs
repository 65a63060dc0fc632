//! Reading bodies: JSON or YAML into one type, with errors that point at the field.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_path_to_error::{Path, Segment};

use crate::problem::{ApiProblem, Kind};

/// The largest body that is read.
pub(crate) const MAX_BODY: usize = 1024 * 1024;
/// How long a body may take to arrive.
const ARRIVES_WITHIN: Duration = Duration::from_secs(10);

/// A body that was read into `T`.
pub(crate) struct Posted<T>(pub(crate) T);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Yaml,
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Posted<T> {
    type Rejection = ApiProblem;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiProblem> {
        let format = format_of(request.headers())?;
        let bytes = match tokio::time::timeout(ARRIVES_WITHIN, Bytes::from_request(request, state)).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(rejection)) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                return Err(ApiProblem::new(Kind::BodyTooLarge, "a body has at most 1 MiB"));
            }
            Ok(Err(rejection)) => {
                drop(rejection.into_response());
                return Err(ApiProblem::new(Kind::BadRequest, "the body ended before it was whole"));
            }
            Err(_) => {
                let detail = format!("the body did not arrive within {} s", ARRIVES_WITHIN.as_secs());
                return Err(ApiProblem::new(Kind::RequestTimeout, detail));
            }
        };
        match format {
            Format::Json => read_json(&bytes).map(Posted),
            Format::Yaml => read_yaml(&bytes).map(Posted),
        }
    }
}

/// Without a word, and with what `curl -d` says by itself, a body is taken for JSON.
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
            let detail = format!("{other:?} is not read here: send application/json or application/yaml");
            Err(ApiProblem::new(Kind::UnsupportedMediaType, detail))
        }
    }
}

/// Reads JSON.
pub(crate) fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiProblem> {
    match bytes.trim_ascii().first() {
        None => return Err(ApiProblem::new(Kind::MalformedBody, "the body is empty")),
        // serde would take a list for the fields in their order, which nobody means.
        Some(b'[') if serde_json::from_slice::<IgnoredAny>(bytes).is_ok() => {
            return Err(bad_field(String::new(), "a list, and an object is expected".to_owned()));
        }
        Some(_) => {}
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let pointer = pointer_to(error.path());
        let inner = error.into_inner();
        if inner.is_data() {
            bad_field(pointer, inner.to_string())
        } else {
            ApiProblem::new(Kind::MalformedBody, format!("the body is not JSON: {inner}"))
        }
    })?;
    let end = reader.end();
    end.map_err(|e| ApiProblem::new(Kind::MalformedBody, format!("after the JSON comes more: {e}")))?;
    Ok(value)
}

/// Reads a JSON value that was put together here, from what was stored and what was sent.
pub(crate) fn read_value<T: DeserializeOwned>(value: serde_json::Value) -> Result<T, ApiProblem> {
    serde_path_to_error::deserialize(value)
        .map_err(|error| bad_field(pointer_to(error.path()), error.into_inner().to_string()))
}

/// Reads one YAML document. Aliases and nesting are bounded by the reader's own budget.
fn read_yaml<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiProblem> {
    let mut pointer = None;
    let read = serde_saphyr::with_deserializer_from_slice(bytes, |reader| {
        serde_path_to_error::deserialize(reader).map_err(|error| {
            pointer = Some(pointer_to(error.path()));
            error.into_inner()
        })
    });
    read.map_err(|error| {
        // The excerpt that the error can carry would repeat secrets of the environment.
        let error = error.without_snippet();
        let at = error.location().map(|at| format!(" (line {}, column {})", at.line(), at.column()));
        let said = error.to_string();
        let text = match at {
            Some(at) if !said.contains("line ") => said + &at,
            _ => said,
        };
        match pointer {
            Some(pointer) if serde_saphyr::from_slice::<IgnoredAny>(bytes).is_ok() => {
                bad_field(pointer, text)
            }
            _ => ApiProblem::new(Kind::MalformedBody, format!("the body is not one YAML document: {text}")),
        }
    })
}

fn bad_field(mut pointer: String, detail: String) -> ApiProblem {
    // For a field that is missing, or there twice, serde points at the object; its words name the field.
    if let Some(field) = field_named(&detail) {
        pointer = format!("{pointer}/{}", escaped(field));
    }
    let place = if pointer.is_empty() { "the body".to_owned() } else { pointer.clone() };
    ApiProblem::new(Kind::InvalidBody, format!("{place}: {detail}")).at(pointer, detail)
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
            Segment::Map { key } => pointer.push_str(&format!("/{}", escaped(key))),
            // The document has no step for these.
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    pointer
}

/// A key as a step of a JSON pointer (RFC 6901).
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use common::spec::ServiceInput;

    use super::*;

    #[test]
    fn formats_by_content_type() {
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
    fn pointers_to_the_field() {
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
            assert_eq!(problem.kind, Kind::InvalidBody, "{json}: {problem:?}");
            assert_eq!(problem.errors[0].pointer, pointer, "{json}: {problem:?}");
        }
    }

    #[test]
    fn yaml_says_where() {
        let problem = read_yaml::<ServiceInput>(b"name: web\nimage: nginx\nreplica: three\n").unwrap_err();
        assert_eq!(problem.kind, Kind::InvalidBody);
        assert_eq!(problem.errors[0].pointer, "/replica", "{problem:?}");
        assert!(problem.detail.contains("line 3"), "{problem:?}");
        let broken = read_yaml::<ServiceInput>(b"name: [web\n").unwrap_err();
        assert_eq!(broken.kind, Kind::MalformedBody, "{broken:?}");
        let two = read_yaml::<ServiceInput>(b"name: a\nimage: a\n---\nname: b\nimage: b\n").unwrap_err();
        assert_eq!(two.kind, Kind::MalformedBody, "{two:?}");
    }

    #[test]
    fn a_secret_of_the_body_is_not_repeated() {
        let yaml = b"name: web\nimage: nginx\nenvironment:\n  PASSWORD: hunter2\nreplica: three\n";
        let problem = read_yaml::<ServiceInput>(yaml).unwrap_err();
        assert!(!format!("{problem:?}").contains("hunter2"), "{problem:?}");
    }

    #[test]
    fn syntax_is_told_from_fields() {
        for broken in ["", " ", "{", "nonsense", r#"{"name":"web"} x"#, "{\"name\":\"web\",}"] {
            let problem = read_json::<ServiceInput>(broken.as_bytes()).unwrap_err();
            assert_eq!(problem.kind, Kind::MalformedBody, "{broken}: {problem:?}");
        }
    }
}
