//! The library that all kubeleet processes share: the domain types, the shapes of the API, and the access to
//! Redis.
//!
//! - Domain types, without I/O and clock: [`ids`], [`spec`], [`payload`], [`lifecycle`], [`pod`], [`health`],
//!   [`node`], [`service`], [`ingress`], [`endpoint`], [`address`], [`handover`], [`value`], [`selector`],
//!   [`event`], [`channel`], [`saved_state`], [`cron`], [`recovery`], [`usage`], [`log_line`], [`log_merge`],
//!   [`mass_loss`]; and the JSON documents of the API: [`api`].
//! - The environment of a process: [`config`], [`timing`], [`secret_key`], [`clock`], [`telemetry`],
//!   [`failpoint`].
//! - Redis: [`store`]. No other module spells a Redis key or imports the `redis` crate.
//! - Helpers: [`backoff`], [`control_loop`], [`document`], [`duration`], [`json_pointer`].

pub mod address;
pub mod address_range;
pub mod api;
pub mod backoff;
pub mod certificate;
pub mod channel;
pub mod clock;
pub mod config;
pub mod control_loop;
pub mod cron;
pub mod document;
pub mod duration;
pub mod endpoint;
pub mod event;
pub mod failpoint;
pub mod file_limit;
pub mod handover;
pub mod health;
pub mod host_access;
pub mod ids;
pub mod image;
pub mod ingress;
pub mod json_pointer;
pub mod lifecycle;
pub mod listen;
pub mod log_line;
pub mod log_merge;
pub mod mass_loss;
pub mod network;
pub mod node;
pub mod payload;
pub mod pod;
pub mod recovery;
pub mod registry;
pub mod replace_file;
pub mod reserve;
mod resources;
pub mod saved_state;
pub mod schema;
pub mod secret_key;
pub mod selector;
pub mod service;
pub mod slot;
pub mod spec;
pub mod store;
mod system_error;
pub mod telemetry;
pub mod timing;
pub mod usage;
pub mod value;
pub mod volume;

pub use system_error::{system_error, without_error_numbers};

/// Milliseconds since the Unix epoch on Redis' clock. The clock of a worker is never stored.
pub type RedisMillis = u64;
