//! `/problems`: meaning and remedy of each problem `type`.

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use utoipa::PartialSchema;
use utoipa::openapi::{RefOr, Schema};

use crate::http::params::{InPath, PathName, string_schema};
use crate::http::problem::{ApiProblem, ProblemKind};

const DOCUMENT: &str = include_str!("../../../docs/reference/problems.md");
const MARKDOWN: &str = "text/markdown; charset=utf-8";

pub(crate) struct ProblemSlug(String);

impl PartialSchema for ProblemSlug {
    fn schema() -> RefOr<Schema> {
        string_schema("^[a-z]+(-[a-z]+)*$", "The last part of the `type` of a problem", "service-not-found")
    }
}

impl PathName for ProblemSlug {
    const PARAMETER: &str = "slug";

    fn parse(text: String) -> Result<Self, ApiProblem> {
        Ok(Self(text))
    }
}

/// Explains all types of problems.
#[utoipa::path(get, path = "/problems", tag = "process", responses(
    (status = 200, description = "All types of problems", body = String, content_type = "text/markdown"),
))]
pub(crate) async fn list_problem_types() -> impl IntoResponse {
    ([(CONTENT_TYPE, MARKDOWN)], DOCUMENT)
}

/// Explains one type of problem: what it means and what to do.
#[utoipa::path(get, path = "/problems/{slug}", tag = "process", params(InPath<ProblemSlug>), responses(
    (status = 200, description = "The type of problem", body = String, content_type = "text/markdown"),
    (status = 404, description = "There is no such type of problem"),
))]
pub(crate) async fn get_problem_type(
    InPath(ProblemSlug(slug)): InPath<ProblemSlug>,
) -> Result<impl IntoResponse, ApiProblem> {
    let section = section(&slug).ok_or_else(|| {
        let detail = format!("there is no type of problem {slug:.80}; GET /problems lists them");
        ApiProblem::new(ProblemKind::RouteNotFound, detail)
    })?;
    Ok(([(CONTENT_TYPE, MARKDOWN)], section))
}

fn section(slug: &str) -> Option<String> {
    // Without one `#`: the section is a document of its own, with a title.
    let start = DOCUMENT.find(&format!("\n## `/problems/{slug}`"))? + "\n#".len();
    let rest = &DOCUMENT[start..];
    let end = rest.find("\n## ").unwrap_or(rest.len());
    Some(format!("{}\n", rest[..end].trim_end()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn every_type_resolves_to_its_own_section() {
        for kind in ProblemKind::ALL {
            let text = section(kind.uri().strip_prefix("/problems/").unwrap()).unwrap();
            assert!(text.starts_with(&format!("# `{}`", kind.uri())), "{text}");
            assert!(text.lines().count() > 1 && !text.contains("\n## "), "{text}");
        }
        for unknown in ["", "x", "service-not-foun", "../problems/internal"] {
            assert_eq!(section(unknown), None, "{unknown}");
        }
    }
}
