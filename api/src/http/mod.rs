//! Parts common to all requests and answers.
//!
//! Tests: beside the code, tests

pub(crate) mod auth;
pub(crate) mod body;
pub(crate) mod connections;
pub(crate) mod middleware;
pub(crate) mod params;
pub(crate) mod patch;
pub(crate) mod problem;
