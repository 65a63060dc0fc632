//! Error responses.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An error response in the form of RFC 9457. `docs/reference/problems.md` lists the types.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Stable identifier of the kind of problem, for example `/problems/service-not-found`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind of problem in a few words.
    pub title: String,
    /// HTTP status code.
    pub status: u16,
    /// What went wrong with this request, and what to do next.
    pub detail: String,
    /// Path of the request.
    #[serde(default)]
    pub instance: String,
    /// Id of the request; the server's log lines of this request carry the same id.
    #[serde(default)]
    pub request_id: String,
    /// Invalid fields of the request body.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldProblem>,
}

/// What is wrong with one field of a request body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldProblem {
    /// JSON pointer to the field; `""` for the whole document.
    #[schema(example = "/containers/0/image")]
    pub pointer: String,
    /// What is wrong with the value, and which values are valid.
    pub detail: String,
}
