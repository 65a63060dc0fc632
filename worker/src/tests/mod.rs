//! Tests of whole workers with a real Redis and a simulated engine.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod broken;
mod claiming;
mod docker;
mod handing_over;
mod health;
mod holding;
mod logs;
mod named_resources;
mod pre_stop;
mod reconciling;
mod recovering;
mod rig;
mod sessions;
mod several;
mod volumes;
