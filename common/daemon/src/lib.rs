//! The environment of every process of kubeleet: settings, the loops that it runs, retries, logging, sockets,
//! and the clock.
//!
//! May import `model`. It knows the URL of Redis as a setting, and speaks to no Redis.
//!
//! Tests: beside the code, documented_settings

pub mod backoff;
pub mod clock;
pub mod config;
pub mod control_loop;
pub mod failpoint;
pub mod file_limit;
pub mod listen;
pub mod redis_url;
pub mod replace_file;
pub mod reserve;
mod system_error;
pub mod telemetry;

pub use system_error::{system_error, without_error_numbers};
