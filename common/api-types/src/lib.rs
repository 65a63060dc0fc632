//! The types of the HTTP API: one per JSON document, written by the server and read by the client.
//!
//! Field names are snake_case. Times are RFC 3339 in UTC, from Redis' clock. Later versions may add fields,
//! so readers ignore unknown ones.
//!
//! May import `model` and `document`.
//!
//! Tests: api::tests, kubeleet::commands::tests

mod apps;
mod cluster;
mod drains;
mod jobs;
mod logs;
mod nodes;
mod plans;
mod pods;
mod problem;
mod queues;
mod recovery;
mod registries;
mod routes;
mod services;
mod status;
mod values;
mod volumes;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use apps::*;
pub use cluster::*;
pub use drains::*;
pub use jobs::*;
pub use logs::*;
use model::time::rfc3339;
pub use nodes::*;
pub use plans::*;
pub use pods::*;
pub use problem::*;
pub use queues::*;
pub use recovery::*;
pub use registries::*;
pub use routes::*;
pub use services::*;
pub use status::*;
pub use values::*;
pub use volumes::*;

/// A collection, or one page of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    /// The objects on this page.
    pub items: Vec<T>,
    /// Cursor of the next page, to be sent as `?after=`. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
