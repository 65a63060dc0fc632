//! A façade over the crates beside it, for as long as other crates still say `common::`. It will go.

pub use api_types as api;
pub use daemon::{
    backoff, clock, failpoint, file_limit, listen, replace_file, system_error, telemetry,
    without_error_numbers,
};
pub use document::{self, json_pointer};
pub use model::*;
pub use store::{self, recovery, saved_state};

/// Control loops, and how they wait for hints.
pub mod control_loop {
    pub use daemon::control_loop::*;
    pub use redis_link::{pending_hints, tick_or_hints};
}

/// Settings.
pub mod config {
    pub use daemon::config::*;
    pub use model::secret::Secret;
    pub use model::timing::Timing;
}
