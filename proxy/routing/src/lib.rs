//! The routes and endpoints of the proxy, followed in Redis.
//!
//! Of this workspace it may import `daemon`, `model`, `store`, `gate` and `tunnel`.
//!
//! Tests: routing, scripts::following, scripts::endpoints, scripts::routes

mod cluster;
mod cluster_file;
mod doubts;
pub mod endpoint_set;
pub mod follow;
mod read_limit;
mod read_pages;
pub mod route;
mod shared;
pub mod snapshot;
