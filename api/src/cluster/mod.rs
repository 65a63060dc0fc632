//! State of the cluster as this process reads it, and changes that it notices over time.
//!
//! Tests: beside the code, tests::outages

pub(crate) mod broken;
pub(crate) mod differing_times;
pub(crate) mod older_state;
pub(crate) mod overview;
pub(crate) mod proxy_watch;
pub(crate) mod readiness;
pub(crate) mod recovery;
pub(crate) mod redis_watch;
pub(crate) mod shared_answer;
pub(crate) mod usage;
