//! Live output of pods: channels and logs.

pub mod channel;
pub mod log_line;
pub mod log_merge;
