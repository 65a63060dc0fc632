//! Reading queries and paths, and handing out pages.

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use common::ids::{InvalidName, NodeName, PodId, ServiceName};
use serde::de::DeserializeOwned;

use crate::problem::{ApiProblem, Kind};

/// How many items a page has unless said.
pub(crate) const PAGE: usize = 1000;
/// The most items a page can have.
const LARGEST_PAGE: usize = 10_000;

/// A query that was read into `T`. Unknown parameters are `T`'s to refuse.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiProblem> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(value)) => Ok(Params(value)),
            Err(rejection) => Err(ApiProblem::new(Kind::InvalidQuery, rejection.body_text())),
        }
    }
}

/// A page's size within bounds.
pub(crate) fn limit(given: Option<usize>) -> Result<usize, ApiProblem> {
    match given.unwrap_or(PAGE) {
        limit @ 1..=LARGEST_PAGE => Ok(limit),
        _ => Err(ApiProblem::new(Kind::InvalidQuery, format!("limit: write 1 to {LARGEST_PAGE}"))),
    }
}

/// A service's name out of a path. What can not be a name names nothing.
pub(crate) fn service_name(text: String) -> Result<ServiceName, ApiProblem> {
    ServiceName::new(text).map_err(|e| named_badly(Kind::ServiceNotFound, &e))
}

/// A node's name out of a path.
pub(crate) fn node_name(text: String) -> Result<NodeName, ApiProblem> {
    NodeName::new(text).map_err(|e| named_badly(Kind::NodeNotFound, &e))
}

/// A pod's uuid out of a path.
pub(crate) fn pod_id(text: String) -> Result<PodId, ApiProblem> {
    PodId::new(text).map_err(|e| named_badly(Kind::PodNotFound, &e))
}

fn named_badly(kind: Kind, error: &InvalidName) -> ApiProblem {
    ApiProblem::new(kind, error.to_string())
}
