//! What every kubeleet process shares: the words of the domain, and the one door to Redis.
//!
//! Pure modules (no I/O, no clock): [`ids`], [`spec`], [`payload`], [`lifecycle`], [`pod`], [`node`],
//! [`service`], [`event`]. Modules at the edge: [`clock`], [`config`], [`telemetry`], [`store`].
//! Nothing outside [`store`] spells a Redis key or imports the `redis` crate.

pub mod clock;
pub mod config;
pub mod event;
pub mod failpoint;
pub mod ids;
pub mod lifecycle;
pub mod node;
pub mod payload;
pub mod pod;
pub mod service;
pub mod spec;
pub mod store;
pub mod telemetry;

/// Milliseconds since the Unix epoch on *Redis'* clock. Never a worker's.
pub type RedisMillis = u64;
