//! The HTTP API: stores what users want to run, and shows what runs.
//!
//! The process is stateless: any number of them over one Redis behave as one. `routes/` has one file per
//! resource, `problem` is the only mapping from errors to HTTP, `openapi` completes the document that the
//! handlers' annotations begin.

mod auth;
mod body;
mod broken;
mod capacity;
mod capacity_gate;
mod connections;
mod differing_times;
mod event_feed;
mod forwards;
mod growth;
mod kind_status;
mod login_check;
mod merged_logs;
pub mod metrics;
mod middleware;
mod older_state;
mod openapi;
mod overview;
mod params;
mod patch;
mod pod_counts;
mod problem;
mod proxy_watch;
mod readiness;
mod recovery;
mod redis_watch;
mod router;
mod routes;
mod secret_keys;
mod server;
mod state;
mod streams;
mod usage;
mod users;
mod views;

#[cfg(test)]
mod tests;

pub use server::{ApiError, Server, run};
