//! Scenarios: clusters of real processes of the real binary, each over a private Redis, observed from
//! outside.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod api;
mod chaos;
mod containers;
mod deaths;
mod external;
mod hosts;
mod input;
mod mistakes;
mod recovery;
mod supervisor;
mod upgrade;

use std::time::Duration;

/// How long a change may take that has no limit of its own.
const SOON: Duration = Duration::from_secs(20);
