//! The environment of every kubeleet process.
//!
//! The URL of Redis is a setting here; nothing connects to Redis.
//!
//! Tests: beside the code, documented_settings

pub mod backoff;
pub mod clock;
pub mod config;
pub mod control_loop;
pub mod failpoint;
pub mod file_limit;
pub mod listen;
pub mod log_limit;
pub mod redis_url;
pub mod reserve;
pub mod state_file;
mod system_error;
pub mod telemetry;
pub mod token_bucket;

pub use system_error::{system_error, without_error_numbers};
