//! What people see of a pod while it runs: channels and logs.

pub mod channel;
pub mod log_line;
pub mod log_merge;
