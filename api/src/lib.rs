//! The HTTP API. The process is stateless: any number of them on one Redis behave as one.
//!
//! Tests: tests

mod admission;
mod cluster;
mod first_names;
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
