//! Clusters of real processes of the real binary, each over a private Redis.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod acme;
mod api;
mod chaos;
mod containers;
mod deaths;
mod dependencies;
mod ends;
mod exec;
mod external;
mod garbage;
mod handover;
mod hosts;
mod https;
mod ingress_limits;
mod input;
mod jobs;
mod leaving;
mod logs;
mod memo;
mod mistakes;
mod named_resources;
mod names;
mod placement;
mod pod_isolation;
mod recovery;
mod registries;
mod resources;
mod secrets;
mod service_names;
mod spread;
mod stateful;
mod supervisor;
mod take_over;
mod three_hosts;
mod tunnel;
mod updates;
mod upgrade;
mod usage;
mod volumes;

use std::time::Duration;

use serde_json::{Value, json};
use testkit::ports::free_port;

/// The deadline of a change without a limit of its own.
const SOON: Duration = Duration::from_secs(60);

fn free_address() -> String {
    format!("127.0.0.1:{}", free_port())
}

/// `KUBELEET_GAPS` overrides the default.
fn tries(default: usize) -> usize {
    std::env::var("KUBELEET_GAPS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The pods sleep for a day, and end at once when they are stopped.
fn sleeper(name: &str, replicas: u64, on_disconnect: &str) -> Value {
    json!({
        "name": name, "image": "none", "command": ["/bin/sleep", "86400"], "replicas": replicas,
        "on_disconnect": on_disconnect, "stop_grace_period": 0,
    })
}
