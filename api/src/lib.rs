//! The HTTP API: stores what people want, and shows what is.
//!
//! Stateless: any number of these processes over one Redis behave as one. `routes/` has one file per resource;
//! `problem` is the only mapping from errors to HTTP.

mod around;
mod auth;
mod body;
mod census;
pub mod dto;
mod feed;
mod metrics;
mod overview;
mod patch;
mod problem;
mod query;
mod router;
mod routes;
mod server;
mod state;
mod views;

#[cfg(test)]
mod tests;

pub use server::{ApiError, Server, run};
