//! The body of every error response.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An error response in the form of RFC 9457. `docs/reference/problems.md` lists the types.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Stable identifier of the kind of problem, for example `/problems/service-not-found`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind of problem in a few words.
    pub title: String,
    /// HTTP status code.
    pub status: u16,
    /// The failure of this request, and the next thing to do.
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
    /// Of `/problems/insufficient-…`: the service that does not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// How much is required: bytes of memory, thousandths of a core, processes, or nodes with free ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<u64>,
    /// How much can be allocated, in the same unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocatable: Option<u64>,
    /// Why it does not fit the nodes: at most 20 of them, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeShortage>,
    /// The number of nodes that were considered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_count: Option<usize>,
}

/// Why a pod does not fit one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeShortage {
    /// Name of the node.
    pub node: String,
    /// The node's offer, or its free amount.
    #[schema(example = "offers 10G of memory")]
    pub reason: String,
}

/// A mistake in one field of a request body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldProblem {
    /// JSON pointer to the field; `""` for the whole document.
    #[schema(example = "/containers/0/image")]
    pub pointer: String,
    /// The mistake in the value, and the valid values.
    pub detail: String,
}
