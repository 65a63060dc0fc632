//! The test harness: private Redis servers, real processes, waiting with deadlines, and the checkers of invariants.
//!
//! Tests act as outsiders where they can: [`Redis::cli`] spells the keys of the contract, as redis-cli would.
//! Everything a test starts dies with it, also when it panics or is killed ([`leash`]). Harness functions panic when
//! something goes wrong, for they run in tests; what they say is written for whoever reads the failure.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

pub mod ablation;
pub mod bed;
pub mod book;
pub mod checkpoint;
pub mod cluster;
pub mod docker;
pub mod exclusive;
pub mod explorer;
pub mod gaps;
pub mod hosts;
pub mod http;
pub mod invariants;
pub mod keyspace;
pub mod leash;
pub mod life;
pub mod ports;
pub mod processes;
pub mod proxy;
pub mod redis;
pub mod require;
pub mod steps;
pub mod wait;
pub mod wire;

pub use ablation::Ablation;
pub use bed::Bed;
pub use checkpoint::Checkpoint;
pub use cluster::{Cluster, Daemon, Timing};
pub use docker::Docker;
pub use http::Http;
pub use keyspace::Keyspace;
pub use redis::Redis;
pub use wait::eventually;
