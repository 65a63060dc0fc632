//! The routes and endpoints that a proxy serves by, and how it follows them in Redis.
//!
//! - [`route`] leads from a request or connection to its service, and [`endpoint_set`] decides what a message
//!   makes of the endpoints of one. Both are pure. [`snapshot`] is what the proxy decides from.
//! - [`follow`] keeps it up to date, and asks the hosts, through the tunnel, while Redis does not answer.
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
