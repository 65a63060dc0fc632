//! The lease, the fence, which stops pods that must never run twice when the lease has expired, and the
//! supervisor, which fences when this process cannot.
//!
//! Tests: beside the code, tests::sessions, scenarios::supervisor, scenarios::deaths, schedules

pub(crate) mod fence;
pub(crate) mod former_names;
pub(crate) mod known_containers;
pub(crate) mod lease;
pub(crate) mod lease_file;
pub(crate) mod liveness;
pub(crate) mod other_lease;
pub mod supervisor;
