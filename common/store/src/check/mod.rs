//! `kubeleet cluster check`: compares all keys with each other, and repairs them.
//!
//! Tests: scripts::checks, broken_keys

mod finding;
mod findings;
mod key_copy;
mod of_nodes;
mod of_relations;
mod of_routes;
mod of_volumes;
mod operations;

pub use finding::Finding;
