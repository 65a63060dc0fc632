//! Workers against a real Redis and a simulated engine.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod claiming;
mod docker;
mod lives;
mod logs;
mod redis;
mod rig;
mod supervising;

pub(crate) use rig::eventually;
