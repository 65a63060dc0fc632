//! Whole schedulers against a real Redis, with fake nodes that only send heartbeats.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod abandoned_volumes;
mod broken;
mod cluster;
mod draining;
mod external_workers;
mod failure_detection;
mod global;
mod healing;
mod killing;
mod placing;
mod planning;
mod preemption;
mod priorities;
mod rebalancing;
mod related;
mod stateful;
mod violations;
mod waking;
