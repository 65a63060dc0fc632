//! A façade over the crates beside it, for as long as other crates still say `common::`. It will go.

pub use api_types as api;
pub use daemon::{
    backoff, clock, failpoint, file_limit, listen, replace_file, system_error, telemetry,
    without_error_numbers,
};
pub use document::{self, json_pointer};
pub use model::network::{address, address_range, certificate, endpoint, handover, ingress};
pub use model::node::{host_access, mass_loss, resources, timing, usage};
pub use model::pod::{health, image, lifecycle, payload, slot};
pub use model::service::{cron, selector, volume};
pub use model::stream::{channel, log_line, log_merge};
pub use model::value::{registry, secret, secret_key};
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
    pub use model::node::timing::Timing;
    pub use model::value::secret::Secret;
}
