//! The test harness: clusters of real processes, fault injection, and the checkers of invariants.
//!
//! Every process that a test starts ends with it, even when the test is killed ([`child_guard`]).
//!
//! Tests: scenarios

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

pub mod checkpoint;
pub mod cluster;
pub mod cuttable_proxy;
pub mod docker;
pub mod endpoints;
pub mod exclusive;
pub mod fixture;
pub mod hosts;
pub mod http;
pub mod in_process;
pub mod invariants;
pub mod journal;
pub mod kept_log;
pub mod keyspace;
pub mod overlap;
pub mod pebble;
pub mod pod_life;
pub mod processes;
pub mod proxy;
pub mod recorded_engine;
pub mod registry;
pub mod steps;
pub mod terminal;

pub use checkpoint::Checkpoint;
pub use cluster::{Cluster, ClusterTiming, DaemonProcess, binary, command};
pub use docker::Docker;
pub use fixture::Fixture;
pub use http::Http;
pub use keyspace::Keyspace;
pub use testkit::{Ablation, Redis, ablation, child_guard, ports, redis, require};
pub use wait::{LIMIT, eventually};

pub mod wait {
    use std::time::Duration;

    pub use testkit::eventually::{check as that, eventually_within as eventually};

    pub const LIMIT: Duration = Duration::from_secs(20);
}
