//! The HTTP API: stores what users want to run, and shows what runs.
//!
//! The process is stateless: any number of them over one Redis behave as one. `routes/` has one file per
//! resource, `http/problem.rs` is the only mapping from errors to HTTP, `openapi` completes the document that
//! the handlers' annotations begin.
//!
//! Tests: tests

mod admission;
mod cluster;
mod http;
pub mod metrics;
mod openapi;
mod router;
mod routes;
mod server;
mod state;
mod status;
mod streams;

#[cfg(test)]
mod tests;

pub use server::{ApiError, Server, run};
