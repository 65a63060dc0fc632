//! Shared code for the tests of all crates. Functions panic on errors.
//!
//! Tests: scripts

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "types")]
pub mod ablation;
#[cfg(feature = "types")]
pub mod api_fixtures;
pub mod child_guard;
pub mod eventually;
#[cfg(feature = "types")]
pub mod fake_api;
pub mod faulty_engine;
#[cfg(feature = "types")]
pub mod fixtures;
pub mod ports;
pub mod redis;
pub mod require;
pub mod sentinel;

#[cfg(feature = "types")]
pub use ablation::Ablation;
pub use child_guard::ChildGuard;
pub use eventually::{block_on, eventually, eventually_within};
pub use faulty_engine::{EngineFault, FaultyEngine};
pub use redis::Redis;
pub use sentinel::SentinelTrio;
